//! The capabilities of a template, found by rendering probes.
//!
//! A template does not say what it supports. A probe is a conversation with a word that stands
//! nowhere else; the template supports the field with the word if the word is in its text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{ChatTemplate, Conversation, Value};

/// An empty list of tools.
const NO_TOOLS: Value = Value::List(Vec::new());
/// The word that a probe looks for.
const WORD: &str = "Qz7probe";
/// Another word, where two are needed.
const OTHER: &str = "Xv9probe";

/// The fields of conversations that a template renders. The names are those of llama-server's
/// `chat_template_caps`.
///
/// ```
/// use backstitch_models::chat::{Capabilities, ChatTemplate};
///
/// let template = ChatTemplate::from_source(
///     "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
///      {% if enable_thinking %}<think>{% endif %}",
/// )?;
/// let capabilities = Capabilities::of(&template);
/// assert!(capabilities.supports_system_role && capabilities.supports_thinking_switch);
/// assert!(!capabilities.supports_tools);
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each field is one of an interface's flags")]
pub struct Capabilities {
    /// A message's content may be a text.
    pub supports_string_content: bool,
    /// A message's content may be a list of parts.
    pub supports_typed_content: bool,
    /// Descriptions of tools are shown to the model.
    pub supports_tools: bool,
    /// Calls of tools in earlier messages are shown.
    pub supports_tool_calls: bool,
    /// Several calls in one message are shown.
    pub supports_parallel_tool_calls: bool,
    /// Results of tools are shown.
    pub supports_tool_responses: bool,
    /// A system message is shown.
    pub supports_system_role: bool,
    /// Reasoning of all earlier messages can be shown.
    pub supports_preserve_reasoning: bool,
    /// The variable `reasoning_effort` has an effect.
    pub supports_reasoning_effort: bool,
    /// The arguments of calls may be an object, not only JSON text.
    pub supports_object_arguments: bool,
    /// The variable `enable_thinking` has an effect.
    pub supports_thinking_switch: bool,
}

impl Capabilities {
    /// Render probes with a template. This takes a dozen renderings of short conversations, each
    /// within the limits of [`ChatTemplate::render`].
    pub fn of(template: &ChatTemplate) -> Self {
        let calls = Calls::of(template);
        let typed = Value::List([part(WORD)].into());
        let typed = render(template, &Conversation::new([message("user", typed)]));
        let system = [message("system", WORD), message("user", "Hello")];
        let with = |name: &str, value: Value| {
            render(template, &Conversation::new([message("user", "Hello")]).set(name, value))
        };
        let effort = |effort: &str| with("reasoning_effort", effort.into());
        let thinking = |enabled: bool| with("enable_thinking", enabled.into());
        Self {
            supports_string_content: shows(template, &Conversation::new([message("user", WORD)])),
            // A template that knows no parts prints the list, with quotes around its texts.
            supports_typed_content: typed.as_deref().is_some_and(|text| {
                text.find(WORD).is_some_and(|i| !text.get(..i).unwrap_or("").ends_with(['\'', '"']))
            }),
            supports_tools: shows_tools(template),
            supports_tool_calls: calls.shows,
            supports_parallel_tool_calls: calls.shows_second,
            supports_tool_responses: calls.shows_response,
            supports_system_role: shows(template, &Conversation::new(system)),
            supports_preserve_reasoning: preserves_reasoning(template),
            supports_reasoning_effort: effort("low") != effort("high"),
            supports_object_arguments: calls.takes_objects,
            supports_thinking_switch: thinking(true) != thinking(false),
        }
    }
}

/// The calls that a template shows.
struct Calls {
    /// True if a call is shown.
    shows: bool,
    /// True if the second call of a message is shown.
    shows_second: bool,
    /// True if a result is shown.
    shows_response: bool,
    /// True if arguments may be an object.
    takes_objects: bool,
}

impl Calls {
    /// Probe a template.
    fn of(template: &ChatTemplate) -> Self {
        let object = |text: &str| Value::map([("place", text.into())]);
        let json = |text: &str| Value::from(format!("{{\"place\": \"{text}\"}}").as_str());
        let takes_objects = shows(template, &called([object(WORD)].into(), "Sunny"));
        let arguments: &dyn Fn(&str) -> Value = if takes_objects { &object } else { &json };
        Self {
            shows: takes_objects || shows(template, &called([json(WORD)].into(), "Sunny")),
            shows_second: shows(template, &called([arguments(OTHER), arguments(WORD)].into(), "Sunny")),
            shows_response: shows(template, &called([arguments(OTHER)].into(), WORD)),
            takes_objects,
        }
    }
}

/// Return a message.
fn message(role: &str, content: impl Into<Value>) -> Value {
    Value::map([("role", role.into()), ("content", content.into())])
}

/// Return a part of a message.
fn part(text: &str) -> Value {
    Value::map([("type", "text".into()), ("text", Value::from(text))])
}

/// Return the description of a tool.
fn tool(description: &str) -> Value {
    let place = Value::map([("type", "string".into()), ("description", Value::from("A place"))]);
    let parameters = Value::map([
        ("type", "object".into()),
        ("properties", Value::map([("place", place)])),
        ("required", Value::List(["place".into()].into())),
    ]);
    let function = Value::map([
        ("name", "weather".into()),
        ("description", description.into()),
        ("parameters", parameters),
    ]);
    Value::map([("type", "function".into()), ("function", function)])
}

/// Return a conversation in which the assistant made calls with these arguments, and got a result.
fn called(arguments: Vec<Value>, result: &str) -> Conversation {
    let ids = ["call00001", "call00002"];
    let calls: Vec<Value> = arguments
        .into_iter()
        .zip(ids)
        .map(|(arguments, id)| {
            let function = Value::map([("name", "weather".into()), ("arguments", arguments)]);
            Value::map([("id", id.into()), ("type", "function".into()), ("function", function)])
        })
        .collect();
    let results = ids.into_iter().take(calls.len()).map(|id| {
        Value::map([
            ("role", "tool".into()),
            ("name", "weather".into()),
            ("tool_call_id", id.into()),
            ("content", result.into()),
        ])
    });
    let assistant = Value::map([
        ("role", "assistant".into()),
        ("content", "".into()),
        ("tool_calls", Value::List(calls.clone())),
    ]);
    let mut messages: Vec<Value> = [message("user", "Hello"), assistant].into();
    messages.extend(results);
    messages.extend([message("assistant", "It is fine."), message("user", "Thanks")]);
    Conversation::new(messages).tools([tool("The weather")])
}

/// Render a conversation; `None` if the template fails. Some templates fail without a list of
/// tools, so they get an empty one then.
fn render(template: &ChatTemplate, conversation: &Conversation) -> Option<String> {
    let rendered = template.render(conversation);
    let rendered = rendered.or_else(|_| template.render(&conversation.clone().set("tools", NO_TOOLS)));
    rendered.ok().map(|rendered| rendered.as_str().into())
}

/// Return true if the text of a conversation contains the word of the probe.
fn shows(template: &ChatTemplate, conversation: &Conversation) -> bool {
    render(template, conversation).is_some_and(|text| text.contains(WORD))
}

/// Return true if descriptions of tools are shown, with or without a system message.
fn shows_tools(template: &ChatTemplate) -> bool {
    let user = || message("user", "Hello");
    let described = || [tool(WORD)];
    shows(template, &Conversation::new([user()]).tools(described()))
        || shows(template, &Conversation::new([message("system", "Be brief."), user()]).tools(described()))
}

/// Return true if the reasoning of an earlier message can be shown. The variables that ask for it
/// are named differently in every family.
fn preserves_reasoning(template: &ChatTemplate) -> bool {
    let assistant = |reasoning: &str| {
        Value::map([
            ("role", "assistant".into()),
            ("content", "Fine.".into()),
            ("reasoning_content", Value::from(reasoning)),
        ])
    };
    let user = || message("user", "Hello");
    let messages = [user(), assistant(WORD), user(), assistant(OTHER), user()];
    let conversation = Conversation::new(messages)
        .set("enable_thinking", true)
        .set("preserve_thinking", true)
        .set("clear_thinking", false)
        .set("truncate_history_thinking", false)
        .set("drop_thinking", false);
    shows(template, &conversation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ChatError;

    /// Return the capabilities of a template.
    fn of(source: &str) -> Result<Capabilities, ChatError> {
        Ok(Capabilities::of(&ChatTemplate::from_source(source)?))
    }

    #[test]
    fn a_plain_template_has_texts_only() -> Result<(), ChatError> {
        let found = of("{% for m in messages %}{{ m.content }}{% endfor %}")?;
        let wanted = Capabilities {
            supports_string_content: true,
            supports_system_role: true,
            supports_tool_responses: true,
            ..Capabilities::default()
        };
        assert_eq!(found, wanted);
        let silent = of("{% if messages[0].role != 'user' %}{{ raise_exception('no') }}{% endif %}")?;
        assert_eq!(silent, Capabilities::default());
        Ok(())
    }

    #[test]
    fn a_template_may_need_a_list_of_tools() -> Result<(), ChatError> {
        let found = of("{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}")?;
        assert!(found.supports_string_content && found.supports_tools && found.supports_system_role);
        Ok(())
    }

    #[test]
    fn every_field_is_found() -> Result<(), ChatError> {
        let found = of("{{ tools | tojson }}{{ reasoning_effort }}{{ enable_thinking }}\
             {% for m in messages %}{% if m.content is string %}{{ m.content }}\
             {% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}\
             {% if preserve_thinking %}{{ m.reasoning_content }}{% endif %}\
             {% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")?;
        let wanted = Capabilities {
            supports_string_content: true,
            supports_typed_content: true,
            supports_tools: true,
            supports_tool_calls: true,
            supports_parallel_tool_calls: true,
            supports_tool_responses: true,
            supports_system_role: true,
            supports_preserve_reasoning: true,
            supports_reasoning_effort: true,
            supports_object_arguments: true,
            supports_thinking_switch: true,
        };
        assert_eq!(found, wanted);
        Ok(())
    }

    #[test]
    fn arguments_may_have_to_be_text_and_calls_one() -> Result<(), ChatError> {
        let found = of("{% for m in messages %}{% if m.tool_calls %}\
             {{ '<' + m.tool_calls[0].function.arguments + '>' }}{% endif %}{% endfor %}")?;
        assert!(found.supports_tool_calls && !found.supports_object_arguments);
        assert!(!found.supports_parallel_tool_calls && !found.supports_string_content);
        Ok(())
    }
}
