//! The one form of messages, tools and choices that all interfaces are read into.

use serde_json::{Map, Value};

/// The content of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// No content, as in an assistant's message that only calls tools.
    #[default]
    None,
    /// A text.
    Text(String),
    /// Texts that the client sent as parts of one message.
    Parts(Vec<String>),
}

impl Content {
    /// Return true if there is no text.
    pub fn is_empty(&self) -> bool {
        match self {
            Content::None => true,
            Content::Text(text) => text.is_empty(),
            Content::Parts(parts) => parts.iter().all(String::is_empty),
        }
    }

    /// Return the text, with `separator` between parts.
    pub fn joined(&self, separator: &str) -> String {
        match self {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join(separator),
        }
    }

    /// Return the texts in their order.
    pub fn texts(&self) -> &[String] {
        match self {
            Content::None => &[],
            Content::Text(text) => core::slice::from_ref(text),
            Content::Parts(parts) => parts,
        }
    }

    /// Append the parts of `other`.
    pub fn append(&mut self, other: Content) {
        let mut parts = self.texts().to_vec();
        parts.extend_from_slice(other.texts());
        *self = Content::Parts(parts);
    }
}

/// A call of a tool that the assistant made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// The identifier that the tool's result refers to; may be empty.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// A message of any interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The speaker: `system`, `developer`, `user`, `assistant`, `tool`, or what a template knows.
    pub role: String,
    /// The text.
    pub content: Content,
    /// The reasoning before the text.
    pub reasoning: String,
    /// The calls of tools behind the text.
    pub tool_calls: Vec<ToolCall>,
    /// The identifier of the call whose result this is.
    pub tool_call_id: Option<String>,
    /// The name of the tool or the speaker.
    pub name: Option<String>,
}

impl Message {
    /// Return a message of a role and a text.
    pub fn new(role: &str, text: impl Into<String>) -> Self {
        Message { role: role.into(), content: Content::Text(text.into()), ..Message::default() }
    }
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The purpose in words; may be empty.
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Value,
}

impl Tool {
    /// Return the tool as OpenAI's chat completions describe it, which is what templates see.
    pub fn to_json(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), self.name.as_str().into());
        function.insert("description".into(), self.description.as_str().into());
        function.insert("parameters".into(), self.parameters.clone());
        serde_json::json!({"type": "function", "function": function})
    }
}

/// The model's freedom to call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Text or calls.
    #[default]
    Auto,
    /// No calls.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// The part of the last message that the model is to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// Its text; its reasoning if it has no text.
    Whatever,
    /// Its text.
    Content,
    /// Its reasoning.
    Reasoning,
}
