//! Probing of what a template can express.
//!
//! A template is a program, so reading it tells little. Rendering small conversations with words
//! that stand nowhere else tells what reaches the text.

use super::input::DATES;
use super::message::{Message, Tool, ToolCall};
use super::values::template_value;
use super::written::{ArgumentsForm, ContentForm, Form, Thoughts, message_value};
use backstitch_models::chat::{ChatTemplate, Conversation, GenerationPrompt, Value};

/// A word that no template has.
pub(super) const NEEDLE: &str = "nEEdle";

/// The abilities of a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Content that is a text.
    pub string_content: bool,
    /// Content that is a list of parts.
    pub typed_content: bool,
    /// Messages of the system.
    pub system_role: bool,
    /// Descriptions of tools.
    pub tools: bool,
    /// Calls of tools in the assistant's messages.
    pub tool_calls: bool,
    /// Several calls in one message.
    pub parallel_tool_calls: bool,
    /// Arguments of calls that are objects rather than JSON text.
    pub object_arguments: bool,
    /// Switching thinking off with the variable `enable_thinking`.
    pub thinking: bool,
    /// Reasoning of earlier answers, if a variable asks for it.
    pub preserved_reasoning: bool,
    /// The variable `reasoning_effort`.
    pub reasoning_effort: bool,
    /// Messages of the role `developer`.
    pub developer_role: bool,
}

impl Capabilities {
    /// Return the abilities by llama-server's names.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "supports_string_content": self.string_content,
            "supports_typed_content": self.typed_content,
            "supports_system_role": self.system_role,
            "supports_tools": self.tools,
            "supports_tool_calls": self.tool_calls,
            "supports_parallel_tool_calls": self.parallel_tool_calls,
            "supports_object_arguments": self.object_arguments,
            "supports_thinking": self.thinking,
            "supports_preserve_reasoning": self.preserved_reasoning,
            "supports_reasoning_effort": self.reasoning_effort,
        })
    }

    /// Probe a template.
    pub(super) fn of(source: &str, probe: &Probe<'_>) -> Self {
        let user = || probe.message("user", NEEDLE.into());
        let typed = Value::List(vec![Value::map([("type", "text".into()), ("text", NEEDLE.into())])]);
        let object = probe.calls(&[r#"{"argument":"nEEdle"}"#], ArgumentsForm::Object);
        let text = probe.calls(&[r#"{"argument":"nEEdle"}"#], ArgumentsForm::Text);
        let escaped = |rendered: &str| rendered.contains("\\\"argument");
        let object_works = object.as_deref().is_some_and(|text| text.contains(NEEDLE) && !escaped(text));
        let text_works = text.as_deref().is_some_and(|text| text.contains(NEEDLE) && !escaped(text));
        let form = if object_works { ArgumentsForm::Object } else { ArgumentsForm::Text };
        let two = probe.calls(&[r#"{"argument":"nEEdle"}"#, r#"{"argument":"second"}"#], form);
        Capabilities {
            string_content: probe.shows(vec![user()], NEEDLE),
            typed_content: probe.shows_typed(probe.message("user", typed)),
            system_role: probe.shows(
                vec![probe.message("system", NEEDLE.into()), probe.message("user", "Hello".into())],
                NEEDLE,
            ),
            tools: probe.shows_tool(),
            tool_calls: object_works || text_works,
            parallel_tool_calls: two.is_some_and(|text| text.contains(NEEDLE) && text.contains("second")),
            object_arguments: object_works,
            thinking: probe.thinking(true) != probe.thinking(false),
            preserved_reasoning: probe.preserves_reasoning(),
            reasoning_effort: probe.effort("low") != probe.effort("high"),
            // gpt-oss tells the developer's messages from the system's.
            developer_role: source.contains("<|channel|>"),
        }
    }
}

/// Return true if a text has the word of a probe, and no printed list.
pub(super) fn shows_parts(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.contains(NEEDLE) && !text.contains("'type'") && !text.contains("\"type\""))
}

/// Return a conversation with the variables that show reasoning: the names that different models
/// have for the same choice.
pub(super) fn variables(conversation: Conversation) -> Conversation {
    let conversation = conversation.set("enable_thinking", true).set("preserve_thinking", true);
    let hides = ["clear_thinking", "truncate_history_thinking", "drop_thinking"];
    hides.into_iter().fold(conversation, |conversation, name| conversation.set(name, false))
}

/// Variables that have to be there. Absent ones are none in most environments, but some templates
/// iterate them all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// Without tools, `tools` is an empty list.
    pub tools: bool,
    /// `documents` is an empty list.
    pub documents: bool,
    /// `functions` is a text of the tools, as in Firefunction's template.
    pub functions: bool,
    /// Variables for the day are texts.
    pub dates: bool,
}

impl Lists {
    /// Return a conversation with the lists that it does not have; tools it has if `has_tools`.
    pub fn fill(self, conversation: Conversation, has_tools: bool) -> Conversation {
        let conversation = if self.tools && !has_tools { conversation.tools([]) } else { conversation };
        let conversation = if self.documents { conversation.documents([]) } else { conversation };
        let conversation = if self.functions { conversation.set("functions", "") } else { conversation };
        let dates = DATES.iter().filter(|_| self.dates);
        dates.fold(conversation, |conversation, (name, _)| conversation.set(name, ""))
    }
}

/// Renderings of small conversations.
#[derive(Clone, Copy)]
pub(super) struct Probe<'t> {
    template: &'t ChatTemplate,
    /// The variables that have to be lists.
    pub lists: Lists,
}

impl<'t> Probe<'t> {
    /// Return renderings with these variables.
    pub(super) fn new(template: &'t ChatTemplate, lists: Lists) -> Self {
        Probe { template, lists }
    }

    /// Find the variables that the template needs even for a greeting.
    pub(super) fn of(source: &str, template: &'t ChatTemplate) -> Self {
        let functions = source.contains("functions");
        let dates = DATES.iter().any(|(name, _)| source.contains(name));
        let greeting = |typed: bool| {
            let part = Value::map([("type", "text".into()), ("text", "Hello".into())]);
            let content = if typed { Value::List(vec![part]) } else { "Hello".into() };
            Conversation::new([Value::map([("role", "user".into()), ("content", content)])])
        };
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let lists = all.into_iter().map(|(tools, documents)| Lists { tools, documents, functions, dates });
        let mut lists = lists;
        let lists = lists.find(|lists| {
            [false, true]
                .into_iter()
                .any(|typed| template.render(&lists.fill(greeting(typed), false)).is_ok())
        });
        Probe { template, lists: lists.unwrap_or(Lists { functions, dates, ..Lists::default() }) }
    }

    pub(super) fn message(&self, role: &str, content: Value) -> Value {
        Value::map([("role", role.into()), ("content", content)])
    }

    /// Return the text of a conversation without tools, `None` if the template fails or refuses.
    pub(super) fn render(&self, conversation: &Conversation) -> Option<String> {
        self.template.render(&self.lists.fill(conversation.clone(), false)).ok().map(String::from)
    }

    /// Return the text of a conversation with a tool.
    pub(super) fn render_with(&self, conversation: Conversation, tool: &Tool) -> Option<String> {
        let conversation = conversation.tools([template_value(&tool.to_json())]);
        self.template.render(&self.lists.fill(conversation, true)).ok().map(String::from)
    }

    /// Return true if `needle` reaches the text of `messages`.
    fn shows(&self, messages: Vec<Value>, needle: &str) -> bool {
        self.render(&Conversation::new(messages)).is_some_and(|text| text.contains(needle))
    }

    /// Return true if a part of content reaches the text as such, not as a printed list.
    fn shows_typed(&self, message: Value) -> bool {
        shows_parts(self.render(&Conversation::new([message])).as_deref())
    }

    /// Return true if a tool reaches the text, at least its name.
    fn shows_tool(&self) -> bool {
        let parameters = serde_json::json!({"type": "object", "properties": {}});
        let tool = Tool { name: NEEDLE.into(), description: NEEDLE.into(), parameters };
        let conversation = Conversation::new([self.message("user", "Hello".into())]);
        let text = self.render_with(conversation.set("enable_thinking", true), &tool);
        text.is_some_and(|text| text.contains(NEEDLE))
    }

    /// Return the text of calls with these arguments.
    pub(super) fn calls(&self, arguments: &[&str], form: ArgumentsForm) -> Option<String> {
        let call = |(i, arguments): (usize, &&str)| ToolCall {
            // Mistral's templates take identifiers of 9 characters alone.
            id: format!("call{i:05}"),
            name: "probe".into(),
            arguments: (*arguments).into(),
        };
        let calls = arguments.iter().enumerate().map(call).collect();
        let message = Message { role: "assistant".into(), tool_calls: calls, ..Message::default() };
        let contents = [ContentForm::Text; 4];
        let form = Form { arguments: form, contents, thoughts: Thoughts::Field("") };
        let messages = [self.message("user", "Hello".into()), message_value(&message, &form)];
        self.render(&Conversation::new(messages).prompt(GenerationPrompt::No))
    }

    /// Return true if the reasoning of an answer that is not the last one can reach the text.
    fn preserves_reasoning(&self) -> bool {
        let answer = |reasoning: &str| {
            let fields = [("role", "assistant"), ("content", "Yes"), ("reasoning_content", reasoning)];
            Value::map(fields.map(|(key, text)| (key, text.into())))
        };
        let user = || self.message("user", "Hello".into());
        let messages = [user(), answer(NEEDLE), user(), answer("Hm"), user()];
        self.render(&variables(Conversation::new(messages))).is_some_and(|text| text.contains(NEEDLE))
    }

    /// Return the text with an effort of reasoning.
    fn effort(&self, effort: &str) -> Option<String> {
        let conversation = Conversation::new([self.message("user", "Hello".into())]);
        self.render(&conversation.set("enable_thinking", true).set("reasoning_effort", effort))
    }

    /// Return the text with thinking on or off.
    fn thinking(&self, on: bool) -> Option<String> {
        let conversation = Conversation::new([self.message("user", "Hello".into())]);
        self.render(&conversation.set("enable_thinking", on))
    }
}
