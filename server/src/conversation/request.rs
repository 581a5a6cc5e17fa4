//! A conversation to continue, with the choices that all interfaces share.

use super::chat::read_function;
use super::error::ConversationError;
use super::message::{Continue, Message, Tool, ToolChoice};
use super::paths::{Paths, ToolPaths};
use super::schema::excludes_objects;
use super::values::Object;
use serde_json::{Map, Value};

/// The server's default for thinking, where a request does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// As the template does it.
    #[default]
    Auto,
    /// On.
    On,
    /// Off, for templates that know thinking.
    Off,
}

/// A conversation to continue.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The tools offered.
    pub tools: Vec<Tool>,
    /// The model's freedom to call them.
    pub tool_choice: ToolChoice,
    /// Several calls in one answer are welcome; `None` for what the template can express.
    pub parallel_tool_calls: Option<bool>,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
    /// The text ends with the beginning of the assistant's next message.
    pub add_generation_prompt: bool,
    /// The last message is the beginning of what the model writes.
    pub continues: Option<Continue>,
    /// Thinking, if the request says.
    pub thinking: Option<bool>,
    /// The paths of all parts in the client's body, for errors.
    pub(super) paths: Paths,
}

impl Request {
    /// Return a request to answer `messages`.
    pub fn new(messages: Vec<Message>) -> Self {
        Request { messages, add_generation_prompt: true, ..Request::default() }
    }

    /// Add the tool at `path`, described by `function`, whose schema is in the field `parameters`.
    pub(super) fn read_tool(
        &mut self,
        path: String,
        function: &Object<'_>,
        parameters: &str,
    ) -> Result<(), ConversationError> {
        let tool = read_function(function, parameters)?;
        if excludes_objects(&tool.parameters) {
            // The arguments of calls are an object in every format.
            let field = format!("{}.type", function.path(parameters));
            return Err(ConversationError::wrong(field, "\"object\": arguments are an object"));
        }
        self.tools.push(tool);
        let (name, parameters) = (function.path("name"), function.path(parameters));
        self.paths.tools.push(ToolPaths { tool: path, name, parameters });
        Ok(())
    }

    /// Leave out the tool at `path`, which cannot run here.
    pub(super) fn leave_out(&mut self, path: String, name: &str) {
        self.paths.left_out.push((path, name.into()));
    }

    /// Remove the tools that have none of these names.
    pub(super) fn keep_tools(&mut self, names: &[&str]) {
        let paths: Vec<ToolPaths> = (0..self.tools.len()).map(|index| self.paths.tool(index)).collect();
        let tools = core::mem::take(&mut self.tools).into_iter().zip(paths);
        (self.tools, self.paths.tools) =
            tools.filter(|(tool, _)| names.contains(&tool.name.as_str())).unzip();
    }

    /// Return the message to continue with the part of it, if there is one, and the messages before
    /// it.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if it is no answer, or one with calls.
    pub(super) fn split_continued(&self) -> Result<(Option<Continued<'_>>, &[Message]), ConversationError> {
        let last = self.continues.zip(self.messages.split_last());
        let Some((part, (message, before))) = last else { return Ok((None, &self.messages)) };
        let wrong = |field: &str, expected| {
            let path = format!("{}{field}", self.paths.message(before.len()));
            Err(ConversationError::wrong(path, expected))
        };
        match (message.role.as_str(), message.tool_calls.is_empty()) {
            ("assistant", true) => Ok((Some(Continued { part, message }), before)),
            ("assistant", false) => wrong("", "an answer without calls: it is the one to continue"),
            _ => wrong(".role", "\"assistant\": it is the message to continue"),
        }
    }

    /// Return true if calls of tools may come in the answer.
    pub fn may_call(&self) -> bool {
        !self.tools.is_empty() && self.tool_choice != ToolChoice::None
    }

    /// Return true if the answer has to call a tool.
    pub(super) fn must_call(&self) -> bool {
        matches!(self.tool_choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    /// Return the tools to describe where the template does not: none if none may be called.
    pub(super) fn tools_to_tell(&self) -> &[Tool] {
        if self.may_call() { &self.tools } else { &[] }
    }

    /// Read the fields that llama-server adds to every interface: `chat_template_kwargs`,
    /// `reasoning_effort`, `add_generation_prompt`, `continue_final_message`,
    /// `parallel_tool_calls`.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] names the field; [`ConversationError::Conflict`] for a
    /// generation prompt behind a message to continue.
    pub(super) fn read_choices(&mut self, body: &Object<'_>) -> Result<(), ConversationError> {
        if let Some(variables) = body.object("chat_template_kwargs")? {
            self.variables.extend(variables.entries().map(|(name, value)| (name.clone(), value.clone())));
            self.thinking = variables.bool("enable_thinking")?;
        }
        match body.str("reasoning_effort")? {
            Some("none") => self.thinking = Some(false),
            Some(effort) if !effort.is_empty() => self.set_effort(effort, "reasoning_effort"),
            _ => {}
        }
        // Any other budget cannot be kept: the model ends its reasoning when it has done.
        for name in ["thinking_budget_tokens", "reasoning_budget_tokens"] {
            if body.whole(name)? == Some(0.0) {
                self.thinking = Some(false);
            }
        }
        self.parallel_tool_calls = body.bool("parallel_tool_calls")?;
        let asked = body.bool("add_generation_prompt")?;
        self.add_generation_prompt = asked.unwrap_or(true);
        self.continues = match body.get("continue_final_message") {
            Some(Value::Bool(true)) => Some(Continue::Whatever),
            Some(Value::String(part)) if part == "content" => Some(Continue::Content),
            Some(Value::String(part)) if part == "reasoning_content" => Some(Continue::Reasoning),
            None | Some(Value::Bool(false)) => None,
            Some(_) => {
                let expected = "true, false, \"content\" or \"reasoning_content\"";
                return Err(ConversationError::wrong("continue_final_message", expected));
            }
        };
        if self.continues.is_some() && self.add_generation_prompt {
            let field = if asked.is_some() { "add_generation_prompt" } else { "continue_final_message" };
            let reason = "add_generation_prompt and continue_final_message cannot both be true";
            return Err(ConversationError::Conflict { field, reason });
        }
        Ok(())
    }

    /// Set the variable of the effort, which stands at `path`.
    pub(super) fn set_effort(&mut self, effort: &str, path: &str) {
        let name = "reasoning_effort";
        self.variables.insert(name.into(), effort.into());
        self.paths.variables.insert(name.into(), path.into());
    }

    /// Continue the last message if it is the assistant's.
    pub fn continue_assistant(&mut self) {
        let ends_with_assistant =
            self.messages.last().is_some_and(|last| last.role == "assistant" && last.tool_calls.is_empty());
        if self.continues.is_none() && ends_with_assistant {
            self.continues = Some(Continue::Whatever);
            self.add_generation_prompt = false;
        }
    }
}

/// A message to continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Continued<'a> {
    /// The part that goes on.
    pub part: Continue,
    /// The message: an answer without calls.
    pub message: &'a Message,
}
