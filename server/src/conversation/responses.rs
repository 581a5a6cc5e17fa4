//! The reader of OpenAI's responses.

use super::chat::{read_arguments, read_tool_choice};
use super::error::ConversationError;
use super::message::{Content, Message, ToolCall};
use super::request::Request;
use super::values::Object;
use serde_json::{Map, Value};

impl Request {
    /// Read the instructions, input, tools and choices of a body of responses.
    ///
    /// # Errors
    /// [`ConversationError`], with the path of the field at fault;
    /// [`ConversationError::Conflict`] for responses that refer to a stored one.
    ///
    /// # Example
    /// ```
    /// use backstitch_server::conversation::{Message, Request};
    ///
    /// let body = serde_json::json!({"instructions": "Be brief.", "input": "Hello"});
    /// let request = Request::from_responses(body.as_object().unwrap())?;
    /// assert_eq!(request.messages[0], Message::new("system", "Be brief."));
    /// assert_eq!(request.messages[1], Message::new("user", "Hello"));
    /// # Ok::<(), backstitch_server::conversation::ConversationError>(())
    /// ```
    pub fn from_responses(body: &Map<String, Value>) -> Result<Self, ConversationError> {
        let body = Object::body(body);
        let is_stored = |field| body.get(field).is_some_and(|id| id.as_str() != Some(""));
        body.str("previous_response_id")?;
        if let Some(field) =
            ["previous_response_id", "conversation"].into_iter().find(|&field| is_stored(field))
        {
            let reason = "responses are not stored: send the whole input instead of 'previous_response_id' or 'conversation'";
            return Err(ConversationError::Conflict { field, reason });
        }
        let (messages, paths) = read_messages(&body)?;
        let mut request = Request::new(messages);
        request.paths.messages = paths;
        for (path, tool) in body.list("tools")? {
            let tool = Object::at(path.clone(), tool)?;
            // Tools that run on OpenAI's machines, such as web search, cannot run here.
            match tool.need_str("type")? {
                "function" => request.read_tool(path, &tool, "parameters")?,
                kind => request.leave_out(path, tool.str("name")?.unwrap_or(kind)),
            }
        }
        request.tool_choice = read_tool_choice(&body, &mut request)?;
        request.read_choices(&body)?;
        // The format of the answer is read with the other fields of the turn.
        body.object("text")?;
        if let Some(effort) =
            body.object("reasoning")?.map(|reasoning| reasoning.str("effort")).transpose()?
        {
            match effort {
                Some("none") => request.thinking = Some(false),
                Some(effort) => request.set_effort(effort, "reasoning.effort"),
                None => {}
            }
        }
        Ok(request)
    }
}

/// Return the messages of instructions and input, and the path of each.
fn read_messages(body: &Object<'_>) -> Result<(Vec<Message>, Vec<String>), ConversationError> {
    let (mut messages, mut paths) = (Vec::new(), Vec::new());
    if let Some(instructions) = body.str("instructions")? {
        messages.push(Message::new("system", instructions));
        paths.push("instructions".to_owned());
    }
    match body.get("input") {
        None => return Err(ConversationError::missing("input")),
        Some(Value::String(text)) => {
            messages.push(Message::new("user", text.as_str()));
            paths.push("input".to_owned());
        }
        Some(Value::Array(_)) => {
            for (path, item) in body.list("input")? {
                read_item(&Object::at(path.clone(), item)?, &mut messages)?;
                paths.resize(messages.len(), path);
            }
        }
        Some(_) => return Err(ConversationError::wrong("input", "a string or an array of items")),
    }
    Ok((messages, paths))
}

/// Append what an item says. Items of one answer of the assistant become one message.
fn read_item(item: &Object<'_>, messages: &mut Vec<Message>) -> Result<(), ConversationError> {
    match item.str("type")?.unwrap_or("message") {
        "message" => read_message(item, messages),
        "function_call" => {
            assistant(messages).tool_calls.push(ToolCall {
                id: item.need_str("call_id")?.into(),
                name: item.need_str("name")?.into(),
                arguments: read_arguments(item.need_str("arguments")?),
            });
            Ok(())
        }
        "function_call_output" => {
            let mut result = Message::new("tool", "");
            result.content = read_content(item, "output")?;
            result.tool_call_id = Some(item.need_str("call_id")?.into());
            messages.push(result);
            Ok(())
        }
        "reasoning" => {
            let field = if item.get("content").is_some() { "content" } else { "summary" };
            for (path, part) in item.list(field)? {
                let text = Object::at(path, part)?.need_str("text")?;
                assistant(messages).reasoning += text;
            }
            Ok(())
        }
        _ => Err(ConversationError::wrong(item.path("type"), "a known type of item")),
    }
}

/// Return the assistant's message at the end, which begins here if there is none.
fn assistant(messages: &mut Vec<Message>) -> &mut Message {
    if messages.last().is_none_or(|last| last.role != "assistant") {
        messages.push(Message { role: "assistant".into(), ..Message::default() });
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// Append a message.
fn read_message(item: &Object<'_>, messages: &mut Vec<Message>) -> Result<(), ConversationError> {
    let role = item.need_str("role")?;
    let content = read_content(item, "content")?;
    // Reasoning and calls are items of their own before and behind the text.
    match messages.last_mut().filter(|last| role == "assistant" && last.role == role) {
        Some(last) if last.content == Content::None => last.content = content,
        Some(last) => last.content.append(content),
        None => messages.push(Message { role: role.into(), content, ..Message::default() }),
    }
    Ok(())
}

/// Read a text or its parts.
fn read_content(item: &Object<'_>, field: &str) -> Result<Content, ConversationError> {
    match item.get(field) {
        None => Ok(Content::None),
        Some(Value::String(text)) => Ok(Content::Text(text.clone())),
        Some(Value::Array(_)) => {
            let mut parts = Vec::new();
            for (path, part) in item.list(field)? {
                let part = Object::at(path, part)?;
                parts.push(match part.need_str("type")? {
                    "input_text" | "output_text" | "text" => part.need_str("text")?.to_string(),
                    "refusal" => part.need_str("refusal")?.to_string(),
                    "input_image" => return Err(part.media("image")),
                    "input_file" => return Err(part.media("file")),
                    _ => return Err(ConversationError::wrong(part.path("type"), "\"input_text\"")),
                });
            }
            Ok(Content::Parts(parts))
        }
        Some(_) => Err(ConversationError::wrong(item.path(field), "a string or an array of parts")),
    }
}
