//! The form in which a template takes messages.
//!
//! Templates refuse what their model never met, or leave it out without a word: a second message
//! of the system, an answer without text, an identifier of another service. Small conversations
//! tell which.

use super::capabilities::{Capabilities, Lists, NEEDLE, Probe, shows_parts, variables};
use super::message::{Content, Message, Tool, ToolCall};
use super::sequences::{Results, Turns};
use super::written::{ArgumentsForm, ContentForm, Form, ROLES, Thoughts, message_value};
use backstitch_models::chat::{Conversation, GenerationPrompt};
use serde_json::json;

/// Another word that no template has.
const SECOND: &str = "thImble";
/// An identifier that all templates take.
pub(super) const SHORT_ID: &str = "call00000";

/// The fields of reasoning, commonest first.
const THOUGHTS: [Thoughts; 5] = [
    Thoughts::Field("reasoning_content"),
    Thoughts::Field("reasoning"),
    Thoughts::Field("thinking"),
    Thoughts::Part,
    Thoughts::Field("tool_plan"),
];

/// The form in which a template takes messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demands {
    /// Several messages of the system at the beginning reach the text.
    pub several_systems: bool,
    /// Messages of the system reach the text where they stand, behind others.
    pub later_systems: bool,
    /// Answers may be empty.
    pub empty_answers: bool,
    /// Identifiers of calls have 9 letters and digits.
    pub short_ids: bool,
    /// The form of each message.
    pub form: Form,
    /// The order in which user and assistant may speak.
    pub turns: Turns,
    /// The places and fields of results of tools.
    pub results: Results,
    /// Messages of roles that no template knows reach the text.
    pub any_role: bool,
    /// Schemas of parameters have a type and properties.
    pub full_schemas: bool,
    /// The variables that have to be lists.
    pub lists: Lists,
    /// Results of tools belong to the message that calls them, as in Gemma 4's first templates.
    pub joined_results: bool,
    /// White space around texts confuses the model, which is so with StepFun's.
    pub trimmed: bool,
}

impl Demands {
    /// Probe a template.
    pub(super) fn of(source: &str, probe: &Probe<'_>, capabilities: &Capabilities) -> Self {
        let probe = Messages { probe: *probe, form: Form::new(capabilities) }.with_form(capabilities);
        let accepts = |message: Message, other: Message| probe.accepts(message) || !probe.accepts(other);
        let joined_results = source.contains("<|tool_call>call:")
            && source.contains("tool_responses")
            && !source.contains("OpenAI Chat Completions:");
        Demands {
            several_systems: probe.shows_systems(&[
                ("system", NEEDLE),
                ("system", SECOND),
                ("user", "Hello"),
            ]),
            later_systems: [true, false].into_iter().all(|is_before| {
                let mut messages =
                    vec![("system", NEEDLE), ("user", "Hello"), ("assistant", "Yes"), ("user", "Hello")];
                messages.insert(if is_before { 3 } else { 4 }, ("system", SECOND));
                probe.shows_systems(&messages)
            }),
            empty_answers: accepts(Message::new("assistant", ""), Message::new("assistant", "Yes")),
            short_ids: !accepts(calling("", "call_0123456789"), calling("", SHORT_ID)),
            form: probe.form,
            turns: Turns::of(&probe),
            results: Results::of(&probe, joined_results),
            any_role: probe.takes_role("unknown-role"),
            full_schemas: probe.needs_full_schemas(),
            lists: probe.probe.lists,
            joined_results,
            trimmed: source.contains("You have access to the following functions in JSONSchema format"),
        }
    }
}

/// Return an answer with a text and a call.
pub(super) fn calling(text: &str, id: &str) -> Message {
    let mut message = Message::new("assistant", text);
    message.tool_calls.push(ToolCall {
        id: id.into(),
        name: "probe".into(),
        arguments: r#"{"argument":"Yes"}"#.into(),
    });
    message
}

/// Return the result of a call.
pub(super) fn result(id: &str) -> Message {
    Message { tool_call_id: Some(id.into()), ..Message::new("tool", "Yes") }
}

/// Renderings of messages in a form.
#[derive(Clone, Copy)]
pub(super) struct Messages<'t> {
    pub probe: Probe<'t>,
    pub form: Form,
}

impl Messages<'_> {
    /// Return renderings in the form that the template takes.
    fn with_form(mut self, capabilities: &Capabilities) -> Self {
        if capabilities.object_arguments {
            // Whatever is cut, a template that takes text writes it as it stands.
            let text = self.probe.calls(&[NEEDLE], ArgumentsForm::Text);
            let takes_text = text.is_some_and(|text| text.contains(NEEDLE));
            self.form.arguments =
                if takes_text { ArgumentsForm::ObjectOrText } else { ArgumentsForm::Object };
        }
        self.form.contents = ROLES.map(|role| self.content(role));
        let thoughts = THOUGHTS.into_iter().find(|thoughts| self.shows_thoughts(*thoughts));
        self.form.thoughts = thoughts.unwrap_or(self.form.thoughts);
        self
    }

    /// Return the content that the template takes in messages of a role; the user's, if it shows
    /// nothing of the role.
    fn content(&self, role: &str) -> ContentForm {
        let usual = self.form.contents[1];
        let text = |content: Content, form: ContentForm| {
            let message = Message { content, ..Message::new(role, "") };
            let messages = match role {
                "tool" => {
                    vec![
                        Message::new("user", "Hello"),
                        calling("", SHORT_ID),
                        Message { content: message.content, ..result(SHORT_ID) },
                    ]
                }
                "assistant" => vec![Message::new("user", "Hello"), message],
                "system" => vec![message, Message::new("user", "Hello")],
                _ => vec![message],
            };
            let mut form = Form { contents: [usual; 4], ..self.form }.with_content(role, form);
            form.thoughts = Thoughts::Field("");
            Messages { form, ..*self }.render(&messages)
        };
        let as_text = text(Content::Text(NEEDLE.into()), ContentForm::Text);
        let as_part = text(Content::Parts(vec![NEEDLE.into()]), ContentForm::Parts);
        let shows_text = as_text.is_some_and(|text| text.contains(NEEDLE));
        match (shows_text, shows_parts(as_part.as_deref())) {
            (false, false) => usual,
            (shows_text, shows_parts) => ContentForm::new(shows_text, shows_parts),
        }
    }

    /// Return the text of messages, `None` if the template fails or refuses.
    pub fn render(&self, messages: &[Message]) -> Option<String> {
        let values = messages.iter().map(|message| message_value(message, &self.form));
        self.probe.render(&variables(Conversation::new(values)).prompt(GenerationPrompt::No))
    }

    /// Return true if the template takes these messages, or does not take the `other` ones either,
    /// which lack what may be the fault.
    pub fn takes(&self, messages: &[Message], other: &[Message]) -> bool {
        self.render(messages).is_some() || self.render(other).is_none()
    }

    /// Return the text of messages together with a tool.
    fn render_with_tool(&self, messages: &[Message]) -> Option<String> {
        let values = messages.iter().map(|message| message_value(message, &self.form));
        let tool = probe_tool(json!({"type": "object", "properties": {}}));
        self.probe.render_with(Conversation::new(values), &tool)
    }

    /// Return true if the template takes these messages together with a tool.
    pub fn takes_with_tool(&self, messages: &[Message]) -> bool {
        self.render_with_tool(messages).is_some()
    }

    /// Return true if the word of the probe reaches the text of these messages beside a tool.
    pub fn shows_with_tool(&self, messages: &[Message]) -> bool {
        self.render_with_tool(messages).is_some_and(|text| text.contains(NEEDLE))
    }

    /// Return true if the word of the probe reaches the text of these messages.
    pub fn shows(&self, messages: &[Message]) -> bool {
        self.render(messages).is_some_and(|text| text.contains(NEEDLE))
    }

    /// Return true if the text of a message of this role reaches the prompt. Many templates leave
    /// out roles that they do not know without a word.
    pub fn takes_role(&self, role: &str) -> bool {
        let [user, answer] = [Message::new("user", "Hello"), Message::new("assistant", "Yes")];
        let message = Message { name: Some("probe".into()), ..Message::new(role, NEEDLE) };
        self.shows(&[user.clone(), answer.clone(), message.clone()])
            || self.shows(&[user.clone(), answer, message, user])
    }

    /// Return true if the template fails for a schema without properties, but not with them.
    fn needs_full_schemas(&self) -> bool {
        let takes = |schema| {
            let hello = message_value(&Message::new("user", "Hello"), &self.form);
            self.probe.render_with(Conversation::new([hello]), &probe_tool(schema)).is_some()
        };
        !takes(json!({})) && takes(json!({"type": "object", "properties": {}, "required": []}))
    }

    /// Return true if the template takes an answer.
    fn accepts(&self, answer: Message) -> bool {
        let mut messages = vec![Message::new("user", "Hello")];
        let result = answer.tool_calls.first().map(|call| Message {
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            ..result("")
        });
        messages.push(answer);
        messages.extend(result);
        self.render(&messages).is_some()
    }

    /// Return true if both texts of the system are shown, each where it stands.
    fn shows_systems(&self, messages: &[(&str, &str)]) -> bool {
        let messages: Vec<_> = messages.iter().map(|(role, text)| Message::new(role, *text)).collect();
        let Some(text) = self.render(&messages) else { return false };
        let mut rest = text.as_str();
        messages.iter().all(|message| match &message.content {
            Content::Text(text) => match rest.split_once(text.as_str()) {
                Some((_, behind)) => {
                    rest = behind;
                    true
                }
                None => false,
            },
            _ => true,
        })
    }

    /// Return true if reasoning in this place is shown, in an answer or beside a call.
    fn shows_thoughts(&self, thoughts: Thoughts) -> bool {
        let probe = Messages { form: Form { thoughts, ..self.form }, ..*self };
        let answer = Message { reasoning: NEEDLE.into(), ..Message::new("assistant", "Yes") };
        let call = Message { reasoning: NEEDLE.into(), ..calling("", SHORT_ID) };
        [answer, call].into_iter().any(|message| {
            let text = probe.render(&[Message::new("user", "Hello"), message]);
            // A printed list is no reasoning.
            text.is_some_and(|text| {
                text.contains(NEEDLE) && !text.contains("'thinking'") && !text.contains("\"thinking\"")
            })
        })
    }
}

/// Return a tool with these parameters.
fn probe_tool(parameters: serde_json::Value) -> Tool {
    Tool { name: "probe".into(), description: "Probe.".into(), parameters }
}
