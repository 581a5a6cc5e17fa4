//! The reader of Anthropic's messages.

use super::error::ConversationError;
use super::message::{Content, Message, ToolCall, ToolChoice};
use super::request::Request;
use super::values::Object;
use serde_json::{Map, Value};

impl Request {
    /// Read the system text, messages, tools and choices of a body of Anthropic's messages.
    ///
    /// # Errors
    /// [`ConversationError`], with the path of the field at fault.
    ///
    /// # Example
    /// ```
    /// use backstitch_server::conversation::Request;
    /// use serde_json::json;
    ///
    /// let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "rain"});
    /// let message = json!({"role": "user", "content": [result]});
    /// let body = json!({"system": "Be brief.", "messages": [message]});
    /// let request = Request::from_anthropic(body.as_object().unwrap())?;
    /// let roles: Vec<&str> = request.messages.iter().map(|message| &*message.role).collect();
    /// assert_eq!(roles, ["system", "tool"]);
    /// # Ok::<(), backstitch_server::conversation::ConversationError>(())
    /// ```
    pub fn from_anthropic(body: &Map<String, Value>) -> Result<Self, ConversationError> {
        let body = Object::body(body);
        if body.get("messages").is_none() {
            return Err(ConversationError::missing("messages"));
        }
        let mut messages: Vec<Message> = read_system(&body)?.into_iter().collect();
        let mut paths = vec!["system".to_owned(); messages.len()];
        for (path, message) in body.list("messages")? {
            read_message(&Object::at(path.clone(), message)?, &mut messages)?;
            paths.resize(messages.len(), path);
        }
        let mut request = Request::new(messages);
        request.paths.messages = paths;
        for (path, tool) in body.list("tools")? {
            let tool = Object::at(path.clone(), tool)?;
            // Tools with another type run on Anthropic's machines, or have no schema of arguments.
            match tool.str("type")? {
                None | Some("custom") => request.read_tool(path, &tool, "input_schema")?,
                Some(kind) => request.leave_out(path, tool.str("name")?.unwrap_or(kind)),
            }
        }
        request.read_choices(&body)?;
        if let Some(choice) = body.object("tool_choice")? {
            request.tool_choice = read_tool_choice(&choice)?;
            request.paths.choice = Some(choice.path("name"));
            request.parallel_tool_calls = choice.bool("disable_parallel_tool_use")?.map(|off| !off);
        }
        // The format of the answer is read with the other fields of the turn.
        body.object("output_config")?;
        if let Some(thinking) = body.object("thinking")? {
            let has_budget = thinking.whole("budget_tokens")? != Some(0.0);
            request.thinking = match thinking.need_str("type")? {
                "enabled" if !has_budget => Some(false),
                "enabled" | "adaptive" => Some(true),
                "disabled" => Some(false),
                _ => {
                    let expected = "\"enabled\", \"adaptive\" or \"disabled\"";
                    return Err(ConversationError::wrong("thinking.type", expected));
                }
            };
        }
        Ok(request)
    }
}

/// Read the system text: a string, or parts that are joined.
fn read_system(body: &Object<'_>) -> Result<Option<Message>, ConversationError> {
    let text = match body.get("system") {
        None => return Ok(None),
        Some(Value::String(text)) => steady_header(text),
        Some(Value::Array(_)) => {
            let mut text = String::new();
            for (path, part) in body.list("system")? {
                text += &steady_header(Object::at(path, part)?.need_str("text")?);
            }
            text
        }
        Some(_) => return Err(ConversationError::wrong("system", "a string or an array of parts")),
    };
    Ok(Some(Message::new("system", text)))
}

/// Return a system text in which the stamp `cch=…;` of a billing header is always the same.
///
/// Anthropic's own programs begin their first system text with a line for the service's billing. It
/// holds a stamp of 5 characters that changes with every request, so no prefix would ever be reused
/// behind it; the model has no use for it.
fn steady_header(text: &str) -> String {
    const STAMP: usize = 5;
    let header_end = text.find(';').filter(|_| text.starts_with("x-anthropic-billing-header:"));
    let stamp = header_end.and_then(|_| text.find("cch=")).map(|at| at + 4);
    match stamp {
        Some(at) if text.is_char_boundary(at + STAMP) && text.as_bytes().get(at + STAMP) == Some(&b';') => {
            let (before, from) = text.split_at(at);
            let (_, after) = from.split_at(STAMP);
            format!("{before}fffff{after}")
        }
        _ => text.into(),
    }
}

/// Append what a message says: its text, reasoning and calls as one message, and behind it a
/// message for each result of a tool.
fn read_message(message: &Object<'_>, messages: &mut Vec<Message>) -> Result<(), ConversationError> {
    let role = message.need_str("role")?;
    let blocks = match message.get("content") {
        None => {
            messages.push(Message { role: role.into(), ..Message::default() });
            return Ok(());
        }
        Some(Value::String(text)) => {
            messages.push(Message::new(role, text.as_str()));
            return Ok(());
        }
        Some(Value::Array(_)) => message.list("content")?,
        Some(_) => {
            return Err(ConversationError::wrong(message.path("content"), "a string or an array of blocks"));
        }
    };
    let mut said = Message { role: role.into(), ..Message::default() };
    let (mut texts, mut results) = (Vec::new(), Vec::new());
    for (path, block) in blocks {
        let block = Object::at(path, block)?;
        match block.need_str("type")? {
            "text" => texts.push(block.need_str("text")?.to_string()),
            "thinking" => said.reasoning += block.need_str("thinking")?,
            "tool_use" => said.tool_calls.push(ToolCall {
                id: block.str("id")?.unwrap_or_default().into(),
                name: block.need_str("name")?.into(),
                arguments: block.get("input").map_or("{}".into(), Value::to_string),
            }),
            "tool_result" => results.push(read_result(&block)?),
            "image" => return Err(block.media("image")),
            "document" => return Err(block.media("document")),
            "search_result" => texts.push(read_found(&block)?),
            // Clients keep what the service sent in their history, such as redacted thinking, and
            // calls of tools on its machines with their results.
            _ => {}
        }
    }
    // Results follow the calls that they belong to, before what is said beside them.
    messages.extend(results);
    if !texts.is_empty() || !said.tool_calls.is_empty() || !said.reasoning.is_empty() {
        said.content = if texts.is_empty() { Content::Text(String::new()) } else { Content::Parts(texts) };
        messages.push(said);
    }
    Ok(())
}

/// Read the result of a tool.
fn read_result(block: &Object<'_>) -> Result<Message, ConversationError> {
    let text = match block.get("content") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => {
            let mut text = String::new();
            for (path, part) in block.list("content")? {
                let part = Object::at(path, part)?;
                match part.need_str("type")? {
                    "text" => text += part.need_str("text")?,
                    "image" => return Err(part.media("image")),
                    "document" => return Err(part.media("document")),
                    "search_result" => text += &read_found(&part)?,
                    // A search among tools found one that is offered from now on.
                    "tool_reference" => {
                        text += &format!("found tool: {}\n", part.str("tool_name")?.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            text
        }
    };
    let mut result = Message::new("tool", text);
    result.tool_call_id = block.str("tool_use_id")?.map(Into::into);
    Ok(result)
}

/// Return the text of something that a search found: its title, its source, and its texts.
fn read_found(block: &Object<'_>) -> Result<String, ConversationError> {
    let mut text = String::new();
    for name in ["title", "source"] {
        text += &block.str(name)?.map_or(String::new(), |line| format!("{line}\n"));
    }
    for (path, part) in block.list("content")? {
        text += Object::at(path, part)?.need_str("text")?;
        text += "\n";
    }
    Ok(text)
}

/// Read the choice of tools.
fn read_tool_choice(choice: &Object<'_>) -> Result<ToolChoice, ConversationError> {
    match choice.need_str("type")? {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "any" => Ok(ToolChoice::Required),
        "tool" => Ok(ToolChoice::Named(choice.need_str("name")?.into())),
        _ => Err(ConversationError::wrong(choice.path("type"), "\"auto\", \"any\", \"tool\" or \"none\"")),
    }
}
