//! Messages in a form that the template can express.

use super::arrange::{arrange_results, arrange_turns};
use super::capabilities::Capabilities;
use super::demands::Demands;
use super::message::{Content, Message};

/// The number of letters and digits in identifiers of calls, where a template counts them.
const ID_LENGTH: usize = 9;

/// Return the messages in a form that the template can express, beside tools or without. If the
/// last one is to be continued, it ends as it does.
pub(super) fn adapt(
    mut messages: Vec<Message>,
    has_tools: bool,
    is_continued: bool,
    capabilities: &Capabilities,
    demands: &Demands,
) -> Vec<Message> {
    for message in &mut messages {
        if message.role == "developer" && !capabilities.developer_role {
            message.role = "system".into();
        }
    }
    let messages = place_systems(messages, capabilities.system_role, demands);
    let messages = arrange_results(messages, &demands.results);
    let mut messages = arrange_turns(messages, demands, has_tools);
    let n_ended = messages.len() - usize::from(is_continued && !messages.is_empty());
    for (i, message) in messages.iter_mut().enumerate() {
        adapt_answer(message, demands);
        if demands.short_ids {
            shorten_ids(message);
        }
        if demands.trimmed && i < n_ended {
            trim(message);
        }
    }
    messages
}

/// Return two texts, a line each.
pub(super) fn joined_texts(one: String, other: String) -> String {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other,
        (_, true) => one,
        (false, false) => format!("{one}\n{other}"),
    }
}

/// Return a message that says what two say, with calls and all.
pub(super) fn joined(first: Message, second: Message) -> Message {
    Message {
        content: Content::Text(joined_texts(first.content.joined("\n"), second.content.joined("\n"))),
        reasoning: joined_texts(first.reasoning, second.reasoning),
        tool_calls: [first.tool_calls, second.tool_calls].concat(),
        role: first.role,
        tool_call_id: first.tool_call_id,
        name: first.name,
    }
}

/// Return true if the message is one of the system or of the developer.
pub(super) fn is_system(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

/// Join messages of the system at the beginning where the template takes one only, and turn those
/// that it does not take into messages of the user. They stay in their places, so that a
/// conversation which goes on keeps its beginning.
fn place_systems(messages: Vec<Message>, has_role: bool, demands: &Demands) -> Vec<Message> {
    let mut placed: Vec<Message> = Vec::with_capacity(messages.len());
    let mut was_turned = false;
    for mut message in messages {
        let is_leading = placed.iter().all(is_system);
        let is_taken = has_role && (is_leading || demands.later_systems);
        let is_turned = is_system(&message) && !is_taken;
        if is_turned {
            message.role = "user".into();
        }
        // Many templates want user and assistant to alternate.
        let joins = |last: &Message| match is_system(&message) {
            true => is_leading && !demands.several_systems,
            false => message.role == "user" && last.role == "user" && (is_turned || was_turned),
        };
        match placed.pop_if(|last| joins(last)) {
            Some(last) => placed.push(joined(last, message)),
            None => placed.push(message),
        }
        was_turned = is_turned;
    }
    placed
}

/// Give an answer a part without text where the template refuses one that says nothing.
fn adapt_answer(message: &mut Message, demands: &Demands) {
    let is_empty = message.content.is_empty() && message.tool_calls.is_empty();
    if message.role == "assistant" && is_empty && !demands.empty_answers {
        // A part without text is more than no content, and adds nothing.
        message.content = Content::Parts(vec![String::new()]);
    }
}

/// Replace identifiers of calls by such of 9 letters and digits, the same for the same one.
fn shorten_ids(message: &mut Message) {
    for call in &mut message.tool_calls {
        call.id = short_id(&call.id);
    }
    if message.role == "tool" {
        message.tool_call_id = Some(short_id(message.tool_call_id.as_deref().unwrap_or_default()));
    }
}

/// Return an identifier of 9 letters and digits for another one, itself if it is such.
fn short_id(id: &str) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    if id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.into();
    }
    // FNV-1a: a conversation has too few calls for two of them to meet.
    let mut rest = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let digits = core::iter::repeat_with(|| {
        let digit = (rest % 36) as usize;
        rest /= 36;
        char::from(DIGITS[digit])
    });
    digits.take(ID_LENGTH).collect()
}

/// Remove white space around texts.
fn trim(message: &mut Message) {
    let trimmed = |text: &String| text.trim().to_owned();
    message.content = match &message.content {
        Content::None => Content::None,
        Content::Text(text) => Content::Text(trimmed(text)),
        Content::Parts(parts) => Content::Parts(parts.iter().map(trimmed).collect()),
    };
    message.reasoning = trimmed(&message.reasoning);
}
