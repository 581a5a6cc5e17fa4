//! Messages as templates see them.

use super::capabilities::Capabilities;
use super::message::{Content, Message, ToolCall};
use backstitch_models::chat::Value;

/// The place of reasoning in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thoughts {
    /// A field of this name.
    Field(&'static str),
    /// A part of the content, before its text.
    Part,
}

/// The form of messages that a template takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Arguments of calls are objects, not JSON text.
    pub objects: bool,
    /// Parts of content are joined to a text.
    pub joins: bool,
    /// Texts are content of one part.
    pub only_typed: bool,
    /// The place of reasoning.
    pub thoughts: Thoughts,
}

impl Form {
    /// Return the form for a template with these abilities.
    pub fn new(capabilities: &Capabilities, thoughts: Thoughts) -> Self {
        Form {
            objects: capabilities.object_arguments,
            joins: !capabilities.typed_content,
            only_typed: capabilities.typed_content && !capabilities.string_content,
            thoughts,
        }
    }
}

/// Return a message as templates see it.
pub(super) fn message_value(message: &Message, form: &Form) -> Value {
    let mut entries = vec![("role", message.role.as_str().into()), ("content", content(message, form))];
    if let Thoughts::Field(name) = form.thoughts
        && !message.reasoning.is_empty()
    {
        entries.push((name, message.reasoning.as_str().into()));
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| call_value(call, form.objects));
        entries.push(("tool_calls", Value::List(calls.collect())));
    }
    let names = [("tool_call_id", &message.tool_call_id), ("name", &message.name)];
    for (name, value) in names {
        entries.extend(value.as_ref().map(|value| (name, value.as_str().into())));
    }
    Value::map(entries)
}

/// Return the content of a message: a text or parts.
fn content(message: &Message, form: &Form) -> Value {
    let part = |kind: &str, text: &str| Value::map([("type", kind.into()), (kind, text.into())]);
    let text = |text: &String| part("text", text);
    if form.thoughts == Thoughts::Part && !message.reasoning.is_empty() {
        let thought = part("thinking", &message.reasoning);
        let texts = message.content.texts().iter().filter(|text| !text.is_empty()).map(text);
        return Value::List(core::iter::once(thought).chain(texts).collect());
    }
    let parts = || Value::List(message.content.texts().iter().map(text).collect());
    match &message.content {
        Content::Text(_) | Content::Parts(_) if form.only_typed => parts(),
        Content::Parts(_) if !form.joins => parts(),
        content => content.joined("\n").into(),
    }
}

/// Return a call as templates see it.
fn call_value(call: &ToolCall, objects: bool) -> Value {
    let arguments = match Value::from_json(&call.arguments) {
        Ok(arguments) if objects => arguments,
        _ => call.arguments.as_str().into(),
    };
    let function = Value::map([("name", call.name.as_str().into()), ("arguments", arguments)]);
    let mut entries = vec![("type", "function".into()), ("function", function)];
    if !call.id.is_empty() {
        entries.push(("id", call.id.as_str().into()));
    }
    Value::map(entries)
}

/// Return messages in which results of tools belong to the message that calls them, in a field
/// `tool_responses`. The answer that follows becomes its text; a text that stands before the calls
/// becomes a message of its own, because the template would write it behind the results.
pub(super) fn with_joined_results(messages: &[Message], form: &Form) -> Vec<Value> {
    let mut values = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((message, behind)) = rest.split_first() {
        rest = behind;
        if message.tool_calls.is_empty() {
            values.push(message_value(message, form));
            continue;
        }
        if !message.content.is_empty() {
            let content = message.content.clone();
            values.push(message_value(&Message { content, ..Message::new("assistant", "") }, form));
        }
        let n = rest.iter().take_while(|result| result.role == "tool").count();
        let (results, behind) = rest.split_at(n);
        rest = behind;
        let mut joined = Message { content: Content::Text(String::new()), ..message.clone() };
        if let Some((answer, behind)) = rest.split_first()
            && answer.role == "assistant"
            && answer.tool_calls.is_empty()
            && !answer.content.is_empty()
            && n > 0
        {
            joined.content = answer.content.clone();
            rest = behind;
        }
        let mut value = message_value(&joined, form);
        if let Value::Map(entries) = &mut value
            && n > 0
        {
            let results = (0..).zip(results).map(|(i, result)| result_value(result, i, &message.tool_calls));
            entries.push(("tool_responses".into(), Value::List(results.collect())));
        }
        values.push(value);
    }
    values
}

/// Return the result of one of `calls`: that of its identifier, or the `i`th.
fn result_value(result: &Message, i: usize, calls: &[ToolCall]) -> Value {
    let id = result.tool_call_id.as_deref().filter(|id| !id.is_empty());
    let call = calls.iter().find(|call| Some(&*call.id) == id).or_else(|| calls.get(i));
    let name = result.name.as_deref().or(call.map(|call| &*call.name)).or(id).unwrap_or_default();
    let text = result.content.joined("\n");
    let response = Value::from_json(&text).unwrap_or_else(|_| text.into());
    Value::map([("name", name.into()), ("response", response)])
}
