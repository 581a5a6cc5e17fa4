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

/// The content that a template takes in messages of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentForm {
    /// Texts; parts are joined.
    Text,
    /// Texts, and lists of parts.
    Both,
    /// Lists of parts; a text becomes a list of one.
    Parts,
}

impl ContentForm {
    /// Return the form for a template that shows texts, or lists of parts, or both.
    pub fn new(shows_text: bool, shows_parts: bool) -> Self {
        match (shows_text, shows_parts) {
            (true, true) => ContentForm::Both,
            (false, true) => ContentForm::Parts,
            (_, false) => ContentForm::Text,
        }
    }
}

/// The arguments of calls that a template takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentsForm {
    /// JSON text.
    Text,
    /// An object, but text that is no JSON object as it is.
    ObjectOrText,
    /// An object.
    Object,
}

/// The form of messages that a template takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// The arguments of calls.
    pub arguments: ArgumentsForm,
    /// The content of messages of the system, of the user, of the assistant, and of tools.
    pub contents: [ContentForm; 4],
    /// The place of reasoning.
    pub thoughts: Thoughts,
}

/// The roles whose contents have a form, in the order of [`Form::contents`].
pub(super) const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

impl Form {
    /// Return the form for a template with these abilities, as far as they tell it.
    pub fn new(capabilities: &Capabilities) -> Self {
        let content = ContentForm::new(capabilities.string_content, capabilities.typed_content);
        Form {
            arguments: match capabilities.object_arguments {
                true => ArgumentsForm::ObjectOrText,
                false => ArgumentsForm::Text,
            },
            contents: [content; 4],
            thoughts: Thoughts::Field("reasoning_content"),
        }
    }

    /// Return the form with another one for the content of a role.
    pub fn with_content(mut self, role: &str, form: ContentForm) -> Self {
        let at = ROLES.iter().position(|known| *known == role);
        at.and_then(|at| self.contents.get_mut(at)).into_iter().for_each(|known| *known = form);
        self
    }

    /// Return the form of the content of a role. Roles that only some templates know are as the
    /// user's.
    fn content(&self, role: &str) -> ContentForm {
        let at = ROLES.iter().position(|known| *known == role).unwrap_or(1);
        self.contents.get(at).copied().unwrap_or(ContentForm::Text)
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
        let calls = message.tool_calls.iter().map(|call| call_value(call, form.arguments));
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
        Content::None => "".into(),
        Content::Text(text) if form.content(&message.role) != ContentForm::Parts => text.as_str().into(),
        Content::Parts(_) if form.content(&message.role) == ContentForm::Text => {
            message.content.joined("\n").into()
        }
        // Some templates refuse a list without parts, but take an empty text.
        Content::Parts(texts) if texts.is_empty() => "".into(),
        Content::Text(_) | Content::Parts(_) => parts(),
    }
}

/// Return a call as templates see it.
fn call_value(call: &ToolCall, form: ArgumentsForm) -> Value {
    let arguments = match form {
        ArgumentsForm::Text => call.arguments.as_str().into(),
        ArgumentsForm::Object | ArgumentsForm::ObjectOrText => object(&call.arguments, form),
    };
    let function = Value::map([("name", call.name.as_str().into()), ("arguments", arguments)]);
    let mut entries = vec![("type", "function".into()), ("function", function)];
    if !call.id.is_empty() {
        entries.push(("id", call.id.as_str().into()));
    }
    Value::map(entries)
}

/// Return arguments as an object. Clients send back what models wrote, so the text may be cut, or
/// no object at all: then it is the only entry of one, or stays as it is where the template takes
/// that.
fn object(text: &str, form: ArgumentsForm) -> Value {
    match Value::from_json(text) {
        Ok(object @ Value::Map(_)) => object,
        Ok(Value::Null) => Value::Map(Vec::new()),
        _ if form == ArgumentsForm::ObjectOrText => text.into(),
        _ => Value::map([("arguments", text.into())]),
    }
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
