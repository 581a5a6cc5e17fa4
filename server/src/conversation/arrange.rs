//! The order of messages, made such that a template takes it.
//!
//! What is done with a message depends only on those before it, so that a conversation which goes on
//! keeps its beginning. Nothing that was said is left out.

use super::adapt::{is_system, joined};
use super::fallback::result_text;
use super::message::{Content, Message, ToolCall};
use super::sequences::{Results, Turns};

/// The speaker of a message that counts where speakers take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    User,
    Assistant,
}

/// Return true for an answer without calls.
fn is_answer(message: &Message) -> bool {
    message.role == "assistant" && message.tool_calls.is_empty()
}

/// Return messages in which user and assistant take turns as far as the template insists on it. Two
/// messages of one speaker become one where they are neighbours; otherwise an empty message of the
/// other stands between them. Calls and their results belong to no turn.
pub(super) fn arrange_turns(messages: Vec<Message>, turns: &Turns) -> Vec<Message> {
    let mut placed: Vec<Message> = Vec::with_capacity(messages.len());
    let mut last: Option<Speaker> = None;
    for message in messages {
        let follows_answer = placed.last().is_some_and(is_answer);
        let follows_user = placed.last().is_some_and(|before| before.role == "user");
        match (message.role.as_str(), last) {
            ("user", Some(Speaker::User)) => {
                if follows_user && !turns.two_users {
                    join_last(&mut placed, message);
                    continue;
                }
                let is_taken = if follows_user { turns.two_users } else { turns.user_behind_result };
                if !is_taken {
                    placed.push(Message::new("assistant", ""));
                }
                last = Some(Speaker::User);
            }
            ("user", _) => last = Some(Speaker::User),
            ("assistant", None) if !turns.first_answer => {
                placed.push(Message::new("user", ""));
                last = Some(if is_answer(&message) { Speaker::Assistant } else { Speaker::User });
            }
            ("assistant", Some(Speaker::Assistant)) if is_answer(&message) => {
                if follows_answer && !turns.two_answers {
                    join_last(&mut placed, message);
                    continue;
                }
            }
            ("assistant", Some(Speaker::Assistant)) if follows_answer && !turns.call_behind_answer => {
                if turns.text_beside_calls {
                    join_last(&mut placed, message);
                } else {
                    placed.extend([Message::new("user", ""), message]);
                }
                // The turn of the answer is one of calls now, or the empty message begins another.
                last = Some(Speaker::User);
                continue;
            }
            ("assistant", _) if is_answer(&message) => last = Some(Speaker::Assistant),
            _ => {}
        }
        placed.push(message);
    }
    if !turns.no_user && placed.iter().all(|message| message.role != "user") {
        let n_systems = placed.iter().take_while(|message| is_system(message)).count();
        placed.insert(n_systems, Message::new("user", ""));
    }
    placed
}

/// Join a message with the last one.
fn join_last(placed: &mut Vec<Message>, message: Message) {
    let message = match placed.pop() {
        Some(last) => joined(last, message),
        None => message,
    };
    placed.push(message);
}

/// Return messages in which calls and results of tools stand as the template takes them: of several
/// calls each in a message of its own with its result, with identifiers and names where the template
/// looks for them. A result that the template cannot take becomes a message of the user.
pub(super) fn arrange_results(messages: Vec<Message>, results: &Results) -> Vec<Message> {
    let mut placed = Vec::with_capacity(messages.len());
    // The calls without a result so far.
    let mut open: Vec<ToolCall> = Vec::new();
    let mut messages = messages.into_iter().peekable();
    let mut was_call = false;
    while let Some(mut message) = messages.next() {
        match message.role.as_str() {
            "tool" => {
                let call = take_call(&mut open, &message);
                placed.push(arranged(message, call, results));
                continue;
            }
            "assistant" if !message.tool_calls.is_empty() => {
                if !was_call {
                    open.clear();
                }
                if !results.without_ids {
                    name_calls(&mut message, placed.len());
                }
                if message.tool_calls.len() > 1 && !results.several_calls {
                    let mut answers = Vec::new();
                    while let Some(answer) = messages.next_if(|next| next.role == "tool") {
                        answers.push(answer);
                    }
                    split_calls(message, answers, results, &mut placed);
                    was_call = false;
                    continue;
                }
                open.extend(message.tool_calls.iter().cloned());
            }
            _ => open.clear(),
        }
        was_call = !message.tool_calls.is_empty();
        placed.push(message);
    }
    placed
}

/// Take the call of a result: that of its identifier, or the first one.
fn take_call(open: &mut Vec<ToolCall>, result: &Message) -> Option<ToolCall> {
    let id = result.tool_call_id.as_deref().filter(|id| !id.is_empty());
    let at = open.iter().position(|call| Some(call.id.as_str()) == id);
    let at = at.or((!open.is_empty()).then_some(0))?;
    Some(open.remove(at))
}

/// Give calls without an identifier one that no other call has.
fn name_calls(message: &mut Message, n_before: usize) {
    for (i, call) in message.tool_calls.iter_mut().enumerate() {
        if call.id.is_empty() {
            call.id = format!("call_{n_before}_{i}");
        }
    }
}

/// Return a result in the form that the template takes, `call` being its call.
fn arranged(mut message: Message, call: Option<ToolCall>, results: &Results) -> Message {
    let has_id = message.tool_call_id.as_deref().is_some_and(|id| !id.is_empty());
    match (&call, results.role) {
        (None, _) if !results.orphans => return Message::new("user", result_text(&message)),
        (_, None) => return Message::new("user", result_text(&message)),
        (_, Some(role)) => message.role = role.into(),
    }
    let Some(call) = call else { return message };
    if !results.unnamed || (!has_id && !results.without_ids) {
        message.tool_call_id = Some(call.id).filter(|id| !id.is_empty()).or(message.tool_call_id);
    }
    if !results.unnamed {
        message.name = message.name.or(Some(call.name));
    }
    message
}

/// Append a message with several calls as messages with one each, each with its result behind it.
fn split_calls(message: Message, answers: Vec<Message>, results: &Results, placed: &mut Vec<Message>) {
    let calls = message.tool_calls.clone();
    let mut open = calls.clone();
    let mut answers: Vec<_> = answers
        .into_iter()
        .map(|answer| {
            let call = take_call(&mut open, &answer);
            (call, answer)
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        let said = match i {
            0 => message.clone(),
            _ => Message { role: message.role.clone(), content: Content::None, ..Message::default() },
        };
        let found = answers.iter().position(|(answered, _)| answered.as_ref() == Some(&call));
        placed.push(Message { tool_calls: vec![call], ..said });
        if let Some((call, answer)) = found.map(|at| answers.remove(at)) {
            placed.push(arranged(answer, call, results));
        }
    }
    placed.extend(answers.into_iter().map(|(call, answer)| arranged(answer, call, results)));
}
