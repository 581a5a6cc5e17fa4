//! Calls of tools as this server's model wrote them.
//!
//! A client sends a call back as a name and arguments, and the template writes these in one of many
//! ways: other white space, another order of tags. The prompt would differ from what the model has
//! evaluated, and everything behind the call would be re-evaluated. So the tokens of answers with
//! calls are remembered, and a prompt gets them in the place of what the template writes, if the
//! client changed nothing. The reader of calls finds the place: where it reads the same calls.

use super::ends::token_offsets;
use super::message::Message;
use super::prompt::Prompt;
use crate::engine::Tenant;
use backstitch_models::Token;
use backstitch_models::chat::Value as TemplateValue;
use backstitch_models::chat::reply::{Format, FoundCalls, ToolCall};
use backstitch_models::vocab::Vocab;
use core::ops::Range;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The most tokens of answers that are remembered. With its text and the arguments a token takes
/// about 20 bytes.
const MAX_TOKENS: usize = 1 << 20;
/// The most answers that are remembered.
const MAX_ANSWERS: usize = 4096;

/// The answers with calls that were given, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct OwnCalls(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    all: VecDeque<Arc<Answer>>,
    n_tokens: usize,
}

/// An answer with calls.
#[derive(Debug)]
struct Answer {
    tenant: Tenant,
    calls: Vec<Call>,
    tokens: Vec<Token>,
    /// The text of the tokens.
    text: String,
    /// The range of the text that is the calls.
    range: Range<usize>,
}

/// A call, as a client sends it back. Numbers are equal if their values are, since programs write
/// them anew.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    id: String,
    name: String,
    arguments: Value,
}

impl Call {
    fn new(id: &str, name: &str, arguments: &str) -> Option<Self> {
        let arguments = plain(serde_json::from_str(arguments).ok()?);
        Some(Call { id: id.into(), name: name.into(), arguments })
    }

    /// Return true if a text has this call, whose identifier need not be in it.
    fn is_same(&self, read: &ToolCall) -> bool {
        let other = Call::new("", &read.name, &read.arguments);
        let is_own = read.id.as_ref().is_none_or(|id| *id == self.id);
        is_own && other.is_some_and(|other| self.name == other.name && self.arguments == other.arguments)
    }
}

/// Return a value with numbers that are integers as integers.
fn plain(value: Value) -> Value {
    /// Integers up to here are exact in 64-bit floats.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(x) if number.is_f64() && x.fract() == 0.0 && x.abs() <= EXACT => Value::from(x as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}

/// The format of calls, the tools that may be called, and the one who may ask for them.
#[derive(Clone, Copy)]
pub(crate) struct CallFormat<'a> {
    pub format: &'a Format,
    pub tools: &'a [TemplateValue],
    pub vocab: &'a Vocab,
    pub tenant: Tenant,
}

/// Return the range of the places from the index `from` on that are these calls, one after the
/// other, and the index behind them.
fn matching(text: &str, places: &[FoundCalls], from: usize, calls: &[Call]) -> Option<(Range<usize>, usize)> {
    (from..places.len()).find_map(|first| {
        let (mut rest, mut index, mut end) = (calls, first, None);
        while !rest.is_empty() {
            let place = places.get(index)?;
            let (wanted, further) = rest.split_at_checked(place.calls.len())?;
            let is_same = wanted.iter().zip(&place.calls).all(|(one, other)| one.is_same(other));
            let is_next = end.is_none_or(|end| text.get(end..place.range.start).is_some_and(is_blank));
            if !is_same || !is_next {
                return None;
            }
            (rest, index, end) = (further, index + 1, Some(place.range.end));
        }
        Some((places.get(first)?.range.start..end?, index))
    })
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

impl OwnCalls {
    fn lock(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remember an answer with calls.
    pub fn remember(&self, calls: &[ToolCall], tokens: &[Token], format: CallFormat<'_>) {
        let calls: Option<Vec<Call>> = calls
            .iter()
            .map(|call| Call::new(call.id.as_deref().unwrap_or_default(), &call.name, &call.arguments))
            .collect();
        let Some(calls) = calls.filter(|calls| !calls.is_empty()) else { return };
        let n_end = tokens.iter().rev().take_while(|token| format.vocab.is_eog(**token)).count();
        let tokens = tokens.get(..tokens.len() - n_end).unwrap_or_default();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| format.vocab.piece(*token)).copied().collect();
        let Ok(text) = String::from_utf8(bytes) else { return };
        // Reasoning may try the calls before they are made.
        let places = format.format.find_calls(&text, format.tools);
        let last = (0..places.len()).rev().find_map(|from| matching(&text, places.get(from..)?, 0, &calls));
        let Some((mut range, _)) = last else { return };
        if text.get(range.end..).is_some_and(is_blank) {
            range.end = text.len();
        }
        let answer = Answer { tenant: format.tenant, calls, tokens: tokens.to_vec(), text, range };
        let mut answers = self.lock();
        answers.n_tokens += answer.tokens.len();
        answers.all.push_back(Arc::new(answer));
        while answers.n_tokens > MAX_TOKENS || answers.all.len() > MAX_ANSWERS {
            let Some(oldest) = answers.all.pop_front() else { break };
            answers.n_tokens -= oldest.tokens.len();
        }
    }

    /// Return the answer of a tenant with these calls.
    fn answer(&self, tenant: Tenant, calls: &[Call]) -> Option<Arc<Answer>> {
        let answers = self.lock();
        answers.all.iter().rev().find(|answer| answer.tenant == tenant && answer.calls == calls).cloned()
    }

    /// Put the tokens that the model wrote into a prompt, in the places of what the template wrote
    /// for the same calls. A place begins with text of the template, or in a text of the assistant
    /// if calls are written there: people may quote calls.
    pub fn restore(&self, prompt: &mut Prompt, messages: &[Message], format: CallFormat<'_>) {
        if self.lock().all.is_empty() {
            return;
        }
        let calls = |message: &Message| -> Option<Vec<Call>> {
            let calls = message.tool_calls.iter();
            calls.map(|call| Call::new(&call.id, &call.name, &call.arguments)).collect()
        };
        let with_calls = messages.iter().filter(|message| !message.tool_calls.is_empty()).filter_map(calls);
        let known: Vec<(Vec<Call>, Option<Arc<Answer>>)> = with_calls
            .map(|calls| {
                let answer = self.answer(format.tenant, &calls);
                (calls, answer)
            })
            .collect();
        if known.iter().all(|(_, answer)| answer.is_none()) {
            return;
        }
        let mut places = format.format.find_calls(&prompt.text, format.tools);
        let own = prompt.trusted.iter().chain(&prompt.with_calls);
        places.retain(|place| own.clone().any(|range| range.contains(&place.range.start)));
        let offsets = token_offsets(&prompt.text, &prompt.tokens, format.vocab);
        let (mut edits, mut from) = (Vec::<Edit>::new(), 0);
        for (calls, answer) in known {
            let Some((place, next)) = matching(&prompt.text, &places, from, &calls) else { continue };
            from = next;
            let edit = answer.and_then(|answer| answer.edit(&prompt.text, &offsets, place, format.vocab));
            let is_behind = |edit: &Edit| edits.last().is_none_or(|last| last.range.end <= edit.range.start);
            edits.extend(edit.filter(is_behind));
        }
        edits.into_iter().rev().for_each(|edit| edit.apply(prompt));
    }
}

/// Tokens in the place of others.
struct Edit {
    range: Range<usize>,
    tokens: Vec<Token>,
}

impl Answer {
    /// Return what puts the calls of this answer into the place of others in a prompt, with all
    /// that the answer says before them if the prompt says the same. Tokens must begin and end
    /// where the place does.
    fn edit(&self, text: &str, offsets: &[usize], place: Range<usize>, vocab: &Vocab) -> Option<Edit> {
        let own = token_offsets(&self.text, &self.tokens, vocab);
        let index = |offsets: &[usize], at: usize| {
            let index = offsets.partition_point(|offset| *offset < at);
            (offsets.get(index) == Some(&at)).then_some(index)
        };
        let before = self.text.get(..self.range.start)?;
        let (start, first) = match text.get(..place.start)?.ends_with(before) {
            true => (place.start - before.len(), 0),
            false => (place.start, self.range.start),
        };
        let range = index(offsets, start)?..index(offsets, place.end)?;
        let tokens = self.tokens.get(index(&own, first)?..index(&own, self.range.end)?)?;
        Some(Edit { range, tokens: tokens.to_vec() })
    }
}

impl Edit {
    /// Change a prompt. The ends of messages move with their tokens.
    fn apply(self, prompt: &mut Prompt) {
        let Edit { range, tokens } = self;
        for end in &mut prompt.message_ends {
            if *end >= range.end {
                *end = *end - range.len() + tokens.len();
            } else if *end > range.start {
                *end = range.start;
            }
        }
        prompt.tokens.splice(range, tokens);
        prompt.message_ends.dedup();
    }
}
