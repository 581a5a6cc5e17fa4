//! The form in which a template takes messages.
//!
//! Templates refuse what their model never met, or leave it out without a word: a second message
//! of the system, an answer without text, an identifier of another service. Small conversations
//! tell which.

use super::capabilities::{Capabilities, NEEDLE, Probe, variables};
use super::message::{Content, Message, ToolCall};
use super::written::{Form, Thoughts, message_value};
use backstitch_models::chat::{ChatTemplate, Conversation, GenerationPrompt};

/// Another word that no template has.
const SECOND: &str = "thImble";
/// An identifier that all templates take.
const SHORT_ID: &str = "call00000";

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
    /// Text may stand beside calls.
    pub text_beside_calls: bool,
    /// Text may stand beside reasoning and calls.
    pub text_beside_thoughts: bool,
    /// Identifiers of calls have 9 letters and digits.
    pub short_ids: bool,
    /// The place of reasoning.
    pub thoughts: Thoughts,
    /// Results of tools belong to the message that calls them, as in Gemma 4's first templates.
    pub joined_results: bool,
    /// White space around texts confuses the model, which is so with StepFun's.
    pub trimmed: bool,
}

impl Demands {
    /// Probe a template.
    pub(super) fn of(source: &str, template: &ChatTemplate, capabilities: &Capabilities) -> Self {
        let form = Form::new(capabilities, Thoughts::Field("reasoning_content"));
        let probe = Messages { probe: Probe(template), form };
        let thoughts = THOUGHTS.into_iter().find(|thoughts| probe.shows_thoughts(*thoughts));
        let thoughts = thoughts.unwrap_or(form.thoughts);
        let probe = Messages { form: Form { thoughts, ..form }, ..probe };
        let accepts = |message: Message, other: Message| probe.accepts(message) || !probe.accepts(other);
        let calling = |text: &str, reasoning: &str, id: &str| Message {
            reasoning: reasoning.into(),
            ..probe.calling(text, id)
        };
        Demands {
            several_systems: probe.shows_systems(&[
                ("system", NEEDLE),
                ("system", SECOND),
                ("user", "Hello"),
            ]),
            later_systems: probe.shows_systems(&[
                ("system", NEEDLE),
                ("user", "Hello"),
                ("assistant", "Yes"),
                ("system", SECOND),
                ("user", "Hello"),
            ]),
            empty_answers: accepts(Message::new("assistant", ""), Message::new("assistant", "Yes")),
            text_beside_calls: accepts(calling("Yes", "", SHORT_ID), calling("", "", SHORT_ID)),
            text_beside_thoughts: accepts(calling("Yes", "Hm", SHORT_ID), calling("", "Hm", SHORT_ID)),
            short_ids: !accepts(calling("", "", "call_0123456789"), calling("", "", SHORT_ID)),
            thoughts,
            joined_results: source.contains("<|tool_call>call:")
                && source.contains("tool_responses")
                && !source.contains("OpenAI Chat Completions:"),
            trimmed: source.contains("You have access to the following functions in JSONSchema format"),
        }
    }
}

/// Renderings of messages in a form.
#[derive(Clone, Copy)]
struct Messages<'t> {
    probe: Probe<'t>,
    form: Form,
}

impl Messages<'_> {
    /// Return an answer with a text and a call.
    fn calling(&self, text: &str, id: &str) -> Message {
        let mut message = Message::new("assistant", text);
        message.tool_calls.push(ToolCall {
            id: id.into(),
            name: "probe".into(),
            arguments: r#"{"argument":"Yes"}"#.into(),
        });
        message
    }

    /// Return the text of messages, `None` if the template fails or refuses.
    fn render(&self, messages: &[Message]) -> Option<String> {
        let values = messages.iter().map(|message| message_value(message, &self.form));
        self.probe.render(&variables(Conversation::new(values)).prompt(GenerationPrompt::No))
    }

    /// Return true if the template takes an answer.
    fn accepts(&self, answer: Message) -> bool {
        let mut messages = vec![Message::new("user", "Hello")];
        let result = answer.tool_calls.first().map(|call| Message {
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            ..Message::new("tool", "Yes")
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
        let call = Message { reasoning: NEEDLE.into(), ..self.calling("", SHORT_ID) };
        [answer, call].into_iter().any(|message| {
            let text = probe.render(&[Message::new("user", "Hello"), message]);
            // A printed list is no reasoning.
            text.is_some_and(|text| {
                text.contains(NEEDLE) && !text.contains("'thinking'") && !text.contains("\"thinking\"")
            })
        })
    }
}
