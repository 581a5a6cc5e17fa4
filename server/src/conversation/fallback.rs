//! Tools for templates that know none.
//!
//! Many models were published with a template that drops tools, calls and their results without a
//! word. Where a template can express neither tools nor calls, they are written into the texts of
//! messages, in the format that most open models have seen: that of Hermes and Qwen. The answer is
//! read in that format too.

use super::message::{Content, Message, Tool, ToolCall};
use serde_json::{Value, json};

/// The marker before a call, by which the format of answers is recognised.
pub(super) const CALL_MARKER: &str = "<tool_call>";

/// Return `messages` with tools, calls and results as text: the tools at the end of the system's
/// message, calls behind the assistant's text, results as messages of the user.
pub(super) fn with_tools_as_text(messages: &[Message], tools: &[Tool]) -> Vec<Message> {
    let mut written: Vec<Message> = messages.iter().cloned().map(without_calls).collect();
    if tools.is_empty() {
        return written;
    }
    let is_system = |message: &Message| matches!(message.role.as_str(), "system" | "developer");
    match written.first_mut().filter(|first| is_system(first)) {
        Some(first) => {
            let text = format!("{}\n\n{}", first.content.joined("\n"), describe(tools));
            first.content = Content::Text(text);
        }
        None => written.insert(0, Message::new("system", describe(tools))),
    }
    written
}

/// Return the text that offers tools.
fn describe(tools: &[Tool]) -> String {
    let lines: String = tools.iter().map(|tool| format!("{}\n", tool.to_json())).collect();
    format!(
        "You can call the functions below. Each line between <tools> and </tools> describes one as \
         JSON.\n<tools>\n{lines}</tools>\nTo call a function, write its name and its arguments as JSON \
         between these tags:\n{CALL_MARKER}\n{{\"name\": \"function name\", \"arguments\": {{}}}}\n</tool_call>"
    )
}

/// Return a message whose calls are text; the result of a tool becomes a message of the user.
fn without_calls(mut message: Message) -> Message {
    if message.role == "tool" {
        return Message::new("user", result_text(&message));
    }
    if !message.tool_calls.is_empty() {
        let calls = core::mem::take(&mut message.tool_calls);
        let said = Some(message.content.joined("\n")).filter(|text| !text.is_empty());
        let texts: Vec<String> = said.into_iter().chain(calls.iter().map(call_text)).collect();
        message.content = Content::Text(texts.join("\n"));
    }
    message
}

/// Return the result of a tool as a text of the user.
pub(super) fn result_text(result: &Message) -> String {
    format!("<tool_response>\n{}\n</tool_response>", result.content.joined("\n"))
}

/// Return a call as the model writes it.
fn call_text(call: &ToolCall) -> String {
    // Arguments that are no JSON stay the text that the client sent.
    let arguments =
        serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone()));
    format!("{CALL_MARKER}\n{}\n</tool_call>", json!({"name": call.name, "arguments": arguments}))
}
