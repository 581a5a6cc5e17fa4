//! The reader of OpenAI's chat completions.

use super::error::ConversationError;
use super::message::{Content, Message, Tool, ToolCall, ToolChoice};
use super::request::Request;
use super::values::Object;
use serde_json::{Map, Value};

impl Request {
    /// Read the messages, tools and choices of a body of chat completions.
    ///
    /// # Errors
    /// [`ConversationError`], with the path of the field at fault.
    ///
    /// # Example
    /// ```
    /// use backstitch_server::conversation::{ConversationError, Request};
    ///
    /// let body = serde_json::json!({"messages": [{"role": "user", "content": 5}]});
    /// let error = Request::from_chat(body.as_object().unwrap()).unwrap_err();
    /// assert_eq!(error, ConversationError::wrong(
    ///     "messages[0].content",
    ///     "a string or an array of parts",
    /// ));
    /// ```
    pub fn from_chat(body: &Map<String, Value>) -> Result<Self, ConversationError> {
        let body = Object::body(body);
        if body.get("messages").is_none() {
            return Err(ConversationError::missing("messages"));
        }
        let mut messages = Vec::new();
        for (path, message) in body.list("messages")? {
            messages.push(read_message(&Object::at(path, message)?)?);
        }
        let mut request = Request::new(messages);
        for (path, tool) in body.list("tools")? {
            let function = read_tool(&Object::at(path.clone(), tool)?)?;
            request.read_tool(path, &function, "parameters")?;
        }
        request.tool_choice = read_tool_choice(&body, &mut request)?;
        request.read_choices(&body)?;
        Ok(request)
    }
}

/// Read a message.
fn read_message(message: &Object<'_>) -> Result<Message, ConversationError> {
    let role = message.need_str("role")?;
    let tool_calls = read_calls(message)?;
    Ok(Message {
        role: role.into(),
        content: read_content(message)?,
        reasoning: match message.str("reasoning_content")? {
            Some(reasoning) => reasoning.into(),
            None => message.get("reasoning").and_then(Value::as_str).unwrap_or_default().into(),
        },
        tool_calls,
        tool_call_id: message.str("tool_call_id")?.map(Into::into),
        name: message.str("name")?.map(Into::into),
    })
}

/// Read the content of a message.
fn read_content(message: &Object<'_>) -> Result<Content, ConversationError> {
    match message.get("content") {
        None => Ok(Content::None),
        Some(Value::String(text)) => Ok(Content::Text(text.clone())),
        Some(Value::Array(_)) => {
            let mut parts = Vec::new();
            for (path, part) in message.list("content")? {
                parts.push(read_part(&Object::at(path, part)?)?.into());
            }
            Ok(Content::Parts(parts))
        }
        Some(_) => Err(ConversationError::wrong(message.path("content"), "a string or an array of parts")),
    }
}

/// Return the text of a part of content.
fn read_part<'a>(part: &Object<'a>) -> Result<&'a str, ConversationError> {
    match part.need_str("type")? {
        "text" => part.need_str("text"),
        "refusal" => part.need_str("refusal"),
        "image_url" => Err(part.media("image")),
        "input_audio" => Err(part.media("audio")),
        "input_video" => Err(part.media("video")),
        _ => Err(ConversationError::wrong(part.path("type"), "\"text\"")),
    }
}

/// Read the calls of an assistant's message.
fn read_calls(message: &Object<'_>) -> Result<Vec<ToolCall>, ConversationError> {
    let mut calls = Vec::new();
    for (path, call) in message.list("tool_calls")? {
        let call = Object::at(path, call)?;
        if call.str("type")?.is_some_and(|kind| kind != "function") {
            return Err(ConversationError::wrong(call.path("type"), "\"function\""));
        }
        let function =
            call.object("function")?.ok_or_else(|| ConversationError::missing(call.path("function")))?;
        calls.push(read_call(call.str("id")?.unwrap_or_default(), &function)?);
    }
    // The former field for the one call of a message. Clients that know both send it twice.
    if let Some(function) = message.object("function_call")?
        && calls.is_empty()
    {
        calls.push(read_call("", &function)?);
    }
    Ok(calls)
}

/// Read the call of a function.
fn read_call(id: &str, function: &Object<'_>) -> Result<ToolCall, ConversationError> {
    Ok(ToolCall {
        id: id.into(),
        name: function.need_str("name")?.into(),
        arguments: match function.get("arguments") {
            Some(Value::String(text)) => read_arguments(text),
            Some(other) => other.to_string(),
            None => read_arguments(""),
        },
    })
}

/// Return the arguments of a call as JSON text: an object without entries for no text, which some
/// clients send.
pub(super) fn read_arguments(text: &str) -> String {
    if text.trim().is_empty() { "{}".into() } else { text.into() }
}

/// Return the description of the function that a tool is.
fn read_tool<'a>(tool: &Object<'a>) -> Result<Object<'a>, ConversationError> {
    if tool.need_str("type")? != "function" {
        return Err(ConversationError::wrong(tool.path("type"), "\"function\""));
    }
    tool.object("function")?.ok_or_else(|| ConversationError::missing(tool.path("function")))
}

/// Read the description of a function, whose schema is in the field `parameters`.
pub(super) fn read_function(function: &Object<'_>, parameters: &str) -> Result<Tool, ConversationError> {
    function.object(parameters)?;
    Ok(Tool {
        name: function.need_str("name")?.into(),
        description: function.str("description")?.unwrap_or_default().into(),
        parameters: function.get(parameters).cloned().unwrap_or_else(|| Value::Object(Map::new())),
    })
}

/// Read the choice of tools: a word, the name of a function, or a list of those that are allowed.
/// Others are removed from `request`.
pub(super) fn read_tool_choice(
    body: &Object<'_>,
    request: &mut Request,
) -> Result<ToolChoice, ConversationError> {
    let expected = "\"auto\", \"none\", \"required\" or a function";
    let wrong = || ConversationError::wrong("tool_choice", expected);
    match body.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            _ => Err(wrong()),
        },
        Some(choice) => {
            let choice = Object::at("tool_choice".into(), choice).map_err(|_| wrong())?;
            // Responses name the function beside the type, chat completions within it.
            if choice.str("type")? == Some("allowed_tools") {
                let allowed = choice.object("allowed_tools")?.unwrap_or(choice);
                return read_allowed(&allowed, request);
            }
            let function = choice.object("function")?.unwrap_or(choice);
            request.paths.choice = Some(function.path("name"));
            Ok(ToolChoice::Named(function.need_str("name")?.into()))
        }
    }
}

/// Read a list of the tools that are allowed, and remove others from `request`.
fn read_allowed(allowed: &Object<'_>, request: &mut Request) -> Result<ToolChoice, ConversationError> {
    let mut names = Vec::new();
    for (path, tool) in allowed.list("tools")? {
        let tool = Object::at(path, tool)?;
        let function = tool.object("function")?.unwrap_or(tool);
        names.extend(function.str("name")?);
    }
    request.keep_tools(&names);
    match allowed.str("mode")? {
        None | Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        Some(_) => Err(ConversationError::wrong(allowed.path("mode"), "\"auto\" or \"required\"")),
    }
}
