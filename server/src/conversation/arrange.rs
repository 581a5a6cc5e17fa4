//! The order of messages, made such that a template takes it.
//!
//! The place of a message depends only on those before it, so that a conversation which goes on
//! keeps its beginning; only results that come late move up to their calls. Nothing that was said
//! is left out.

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
pub(super) fn arrange_turns(messages: Vec<Message>, turns: &Turns, has_tools: bool) -> Vec<Message> {
    let mut placed: Vec<Message> = Vec::with_capacity(messages.len());
    let mut last: Option<Speaker> = None;
    for message in messages {
        let follows_answer = placed.last().is_some_and(is_answer);
        let follows_tool =
            placed.last().is_some_and(|last| last.role == "tool" || !last.tool_calls.is_empty());
        let follows_user = placed.last().is_some_and(|before| before.role == "user");
        match (message.role.as_str(), last) {
            ("user", Some(Speaker::User)) => {
                if follows_user && !turns.two_users {
                    join_last(&mut placed, message);
                    continue;
                }
                let is_taken = if follows_tool { turns.user_behind_result } else { turns.two_users };
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
                if !turns.two_answers {
                    placed.push(Message::new("user", ""));
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
    let can_lack_user = turns.no_user && (turns.no_user_with_tools || !has_tools);
    if !can_lack_user && placed.iter().all(|message| message.role != "user") {
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

/// Return messages in which calls and results of tools stand as the template takes them: each call
/// before its result, several calls in messages of their own, with identifiers and names where the
/// template looks for them. A result that the template cannot take becomes a message of the user.
pub(super) fn arrange_results(messages: Vec<Message>, results: &Results) -> Vec<Message> {
    let is_of_tools = |message: &Message| {
        message.role == "tool" || (message.role == "assistant" && !message.tool_calls.is_empty())
    };
    let mut placed = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if !is_of_tools(&message) {
            placed.push(message);
            continue;
        }
        let mut exchange = Exchange::default();
        let mut next = Some(message);
        while let Some(message) = next {
            exchange.add(message, results, placed.len());
            next = messages.next_if(is_of_tools);
        }
        placed.extend(exchange.arranged(results));
    }
    placed
}

/// Calls and results that follow each other.
#[derive(Default)]
struct Exchange {
    /// The messages; for a result the index of the message with its call, or of the last one with
    /// calls before it.
    messages: Vec<(Message, Option<usize>)>,
    /// The calls without a result so far, with the indices of their messages.
    open: Vec<(usize, ToolCall)>,
    /// The index of the last message with calls.
    last: Option<usize>,
    /// True if a message had several calls that the template takes one at a time.
    is_split: bool,
}

impl Exchange {
    /// Add a message. `n_before` messages stand before all of these.
    fn add(&mut self, mut message: Message, results: &Results, n_before: usize) {
        if message.role == "tool" {
            let id = message.tool_call_id.as_deref().filter(|id| !id.is_empty());
            let at = self.open.iter().position(|(_, call)| Some(call.id.as_str()) == id);
            let at = at.or((!self.open.is_empty()).then_some(0));
            let found = at.map(|at| self.open.remove(at));
            let of = found.as_ref().map(|(of, _)| *of).or(self.last);
            self.messages.push((arranged(message, found.map(|(_, call)| call), results), of));
            return;
        }
        if !results.without_ids {
            name_calls(&mut message, n_before + self.messages.len());
        }
        self.is_split |= !results.several_calls && message.tool_calls.len() > 1;
        let n_alone = if results.several_calls { message.tool_calls.len() } else { 1 };
        let mut calls = core::mem::take(&mut message.tool_calls).into_iter().peekable();
        while calls.peek().is_some() {
            let some: Vec<ToolCall> = calls.by_ref().take(n_alone).collect();
            let of = self.messages.len();
            self.open.extend(some.iter().map(|call| (of, call.clone())));
            let next = Message { role: message.role.clone(), content: Content::None, ..Message::default() };
            let said = core::mem::replace(&mut message, next);
            self.messages.push((Message { tool_calls: some, ..said }, None));
            self.last = Some(of);
        }
    }

    /// Return the messages in the order that the template takes.
    fn arranged(self, results: &Results) -> Vec<Message> {
        if results.calls_in_a_row && !self.is_split {
            return self.messages.into_iter().map(|(message, _)| message).collect();
        }
        let mut numbered: Vec<_> = self.messages.into_iter().enumerate().collect();
        // A result comes behind its call, and behind those that came before it.
        numbered.sort_by_key(|(i, (_, of))| of.map_or((*i, false), |of| (of, true)));
        numbered.into_iter().map(|(_, (message, _))| message).collect()
    }
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
