//! The order of messages, made such that a template takes it.
//!
//! The place of a message depends only on those before it, so that a conversation which goes on
//! keeps its beginning; only results that come late move up to their calls, and one that names no
//! call gets one that no later result names. Nothing is left out here.

use super::adapt::{is_system, joined, joined_texts};
use super::demands::Demands;
use super::fallback::result_text;
use super::message::{Content, Message, ToolCall};
use super::sequences::Results;
use std::collections::{HashMap, VecDeque};

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
pub(super) fn arrange_turns(messages: Vec<Message>, demands: &Demands, has_tools: bool) -> Vec<Message> {
    let mut turns = Turns { demands, placed: Vec::with_capacity(messages.len()), last: None };
    messages.into_iter().for_each(|message| turns.place(message));
    let mut placed = turns.placed;
    let can_lack_user = demands.turns.no_user && (demands.turns.no_user_with_tools || !has_tools);
    if !can_lack_user && placed.iter().all(|message| message.role != "user") {
        let n_systems = placed.iter().take_while(|message| is_system(message)).count();
        placed.insert(n_systems, Message::new("user", ""));
    }
    placed
}

/// The turns so far.
struct Turns<'d> {
    demands: &'d Demands,
    placed: Vec<Message>,
    last: Option<Speaker>,
}

impl Turns<'_> {
    fn place(&mut self, message: Message) {
        match message.role.as_str() {
            "user" => self.place_user(message),
            "assistant" if is_answer(&message) => self.place_answer(message),
            "assistant" => self.place_calls(message),
            _ => self.placed.push(message),
        }
    }

    fn place_user(&mut self, message: Message) {
        let turns = &self.demands.turns;
        if self.last == Some(Speaker::User) {
            let before = self.placed.last();
            if before.is_some_and(|before| before.role == "user") && !turns.two_users {
                return join_last(&mut self.placed, message);
            }
            let follows_tool =
                before.is_some_and(|before| before.role == "tool" || !before.tool_calls.is_empty());
            let is_taken = if follows_tool { turns.user_behind_result } else { turns.two_users };
            if !is_taken {
                self.placed.push(Message::new("assistant", ""));
            }
        }
        self.last = Some(Speaker::User);
        self.placed.push(message);
    }

    fn place_answer(&mut self, message: Message) {
        let turns = &self.demands.turns;
        match self.last {
            None if !turns.first_answer => self.placed.push(Message::new("user", "")),
            Some(Speaker::Assistant) if !turns.two_answers => {
                if self.follows_answer() {
                    return join_last(&mut self.placed, message);
                }
                self.placed.push(Message::new("user", ""));
            }
            _ => {}
        }
        self.last = Some(Speaker::Assistant);
        self.placed.push(message);
    }

    fn place_calls(&mut self, message: Message) {
        let turns = &self.demands.turns;
        match self.last {
            None if !turns.first_answer => {
                self.placed.extend([Message::new("user", ""), message]);
                self.last = Some(Speaker::User);
            }
            Some(Speaker::Assistant) if self.follows_answer() && !turns.call_behind_answer => {
                if self.demands.results.takes_text(&message) {
                    join_last(&mut self.placed, message);
                } else {
                    self.placed.extend([Message::new("user", ""), message]);
                }
                // The turn of the answer is one of calls now, or the empty message begins another.
                self.last = Some(Speaker::User);
            }
            _ => self.placed.push(message),
        }
    }

    fn follows_answer(&self) -> bool {
        self.placed.last().is_some_and(is_answer)
    }
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
    /// The messages, those with several calls taken apart where the template takes one at a time.
    messages: Vec<Message>,
    /// The calls, each with the index of its message.
    calls: Vec<(usize, ToolCall)>,
    /// True if a message was taken apart: it had several calls that the template takes one at a
    /// time, or a text beside calls.
    is_split: bool,
}

/// The calls of one identifier.
#[derive(Default)]
struct SameId {
    /// The indices of those without a result.
    open: VecDeque<usize>,
    /// The index of the one that was answered last.
    answered: Option<usize>,
}

impl Exchange {
    /// Add a message. `n_before` messages stand before all of these.
    fn add(&mut self, mut message: Message, results: &Results, n_before: usize) {
        if message.role == "tool" {
            self.messages.push(message);
            return;
        }
        if !results.without_ids {
            name_calls(&mut message, n_before + self.messages.len());
        }
        let said = split_text(&mut message, results);
        self.is_split |= said.is_some() || (!results.several_calls && message.tool_calls.len() > 1);
        self.messages.extend(said);
        let n_alone = if results.several_calls { message.tool_calls.len() } else { 1 };
        let mut calls = core::mem::take(&mut message.tool_calls).into_iter().peekable();
        while calls.peek().is_some() {
            let some: Vec<ToolCall> = calls.by_ref().take(n_alone).collect();
            let of = self.messages.len();
            self.calls.extend(some.iter().map(|call| (of, call.clone())));
            let next = Message { role: message.role.clone(), content: Content::None, ..Message::default() };
            let said = core::mem::replace(&mut message, next);
            self.messages.push(Message { tool_calls: some, ..said });
        }
    }

    /// Return for each message the index of the call that it answers. A result belongs to the call
    /// of its identifier, even if that was answered before. Only those that name no call get the
    /// calls that are left.
    fn answered_calls(&self) -> Vec<Option<usize>> {
        let mut by_id: HashMap<&str, SameId> = HashMap::new();
        let mut calls = self.calls.iter().enumerate().peekable();
        let mut answered = Vec::with_capacity(self.messages.len());
        let mut is_open = vec![true; self.calls.len()];
        for (i, message) in self.messages.iter().enumerate() {
            while let Some((at, (_, call))) = calls.next_if(|(_, (of, _))| *of <= i) {
                by_id.entry(&call.id).or_default().open.push_back(at);
            }
            let id = message.tool_call_id.as_deref().filter(|id| message.role == "tool" && !id.is_empty());
            let same = id.and_then(|id| by_id.get_mut(id));
            let at = same.and_then(|same| {
                same.answered = same.open.pop_front().or(same.answered);
                same.answered
            });
            at.and_then(|at| is_open.get_mut(at)).into_iter().for_each(|is_open| *is_open = false);
            answered.push(at);
        }
        let left = self.calls.iter().enumerate().zip(is_open).filter(|(_, is_open)| *is_open);
        let mut left = left.map(|((at, (of, _)), _)| (at, *of)).peekable();
        for (i, (message, at)) in self.messages.iter().zip(&mut answered).enumerate() {
            if message.role == "tool" && at.is_none() {
                *at = left.next_if(|(_, of)| *of < i).map(|(at, _)| at);
            }
        }
        answered
    }

    /// Return the messages in the order that the template takes.
    fn arranged(self, results: &Results) -> Vec<Message> {
        let answered = self.answered_calls();
        let mut first_results: HashMap<usize, usize> = HashMap::new();
        let mut last = None;
        // Each message with the index of the one that calls, and true for results.
        let mut placed: Vec<(Message, (usize, bool))> = Vec::with_capacity(self.messages.len());
        for (i, (message, at)) in self.messages.into_iter().zip(answered).enumerate() {
            if message.role != "tool" {
                last = Some(i);
                placed.push((message, (i, false)));
                continue;
            }
            // A call that has its result takes no other one where all results need a call.
            let needs_call = !results.orphans && results.role.is_some();
            let first = at.and_then(|at| first_results.get(&at)).filter(|_| needs_call);
            if let Some((first, _)) = first.and_then(|first| placed.get_mut(*first)) {
                *first = joined(core::mem::take(first), message);
                continue;
            }
            if let Some(at) = at {
                first_results.insert(at, placed.len());
            }
            let call = at.and_then(|at| self.calls.get(at));
            let place = call.map(|(of, _)| *of).or(last).map_or((i, false), |of| (of, true));
            placed.push((arranged(message, call.map(|(_, call)| call.clone()), results), place));
        }
        if !results.calls_in_a_row || self.is_split {
            // A result comes behind its call, and behind those that came before it.
            placed.sort_by_key(|(_, place)| *place);
        }
        placed.into_iter().map(|(message, _)| message).collect()
    }
}

/// Take the text out of a message with calls if it would not reach the prompt there. It becomes a
/// message of its own, which is returned. Where the template only refuses it beside reasoning, it
/// joins that: gpt-oss's writes a text beside calls as reasoning, too.
fn split_text(message: &mut Message, results: &Results) -> Option<Message> {
    if message.content.is_empty() || results.takes_text(message) {
        return None;
    }
    let content = core::mem::take(&mut message.content);
    if results.text_beside_calls {
        let reasoning = core::mem::take(&mut message.reasoning);
        message.reasoning = joined_texts(reasoning, content.joined("\n"));
        return None;
    }
    Some(Message { content, ..Message::new(&message.role, "") })
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
