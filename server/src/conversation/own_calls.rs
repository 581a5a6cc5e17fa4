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
use backstitch_models::Token;
use backstitch_models::chat::Value as TemplateValue;
use backstitch_models::chat::reply::{Format, ToolCall};
use backstitch_models::vocab::Vocab;
use core::ops::Range;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The most tokens of answers that are remembered, 4 bytes each.
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

    /// Return true if the model may have written `other`, whose identifier need not be in the text.
    fn is_same(&self, other: &ToolCall) -> bool {
        let other = Call::new("", &other.name, &other.arguments);
        other.is_some_and(|other| self.name == other.name && self.arguments == other.arguments)
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

/// The format of calls, and the tools that may be called.
#[derive(Clone, Copy)]
pub(crate) struct CallFormat<'a> {
    pub format: &'a Format,
    pub tools: &'a [TemplateValue],
    pub vocab: &'a Vocab,
}

impl CallFormat<'_> {
    /// Return the range of the first calls in `text` from `from` on that are these, one after the
    /// other.
    fn find(&self, text: &str, from: usize, calls: &[Call]) -> Option<Range<usize>> {
        let (mut at, mut found, mut start) = (from, Vec::new(), None);
        while found.len() < calls.len() {
            let (range, read) = self.format.find_calls(text.get(at..)?, self.tools)?;
            let wanted = calls.get(found.len()..found.len() + read.len());
            let is_wanted =
                wanted.is_some_and(|wanted| wanted.iter().zip(&read).all(|(one, other)| one.is_same(other)));
            let is_adjacent = start.is_none() || text.get(at..at + range.start)?.trim().is_empty();
            if is_wanted && is_adjacent {
                start = start.or(Some(at + range.start));
                found.extend(read);
                at += range.end;
            } else if start.take().is_some() {
                // The calls at this place are read again as the first ones.
                found.clear();
            } else {
                at += range.end;
            }
        }
        Some(start?..at)
    }
}

impl OwnCalls {
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
        let Some(mut range) = format.find(&text, 0, &calls) else { return };
        if text.get(range.end..).is_some_and(|behind| behind.trim().is_empty()) {
            range.end = text.len();
        }
        let answer = Answer { calls, tokens: tokens.to_vec(), text, range };
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.n_tokens += answer.tokens.len();
        answers.all.push_back(Arc::new(answer));
        while answers.n_tokens > MAX_TOKENS || answers.all.len() > MAX_ANSWERS {
            let Some(oldest) = answers.all.pop_front() else { break };
            answers.n_tokens -= oldest.tokens.len();
        }
    }

    /// Return the answer with these calls.
    fn answer(&self, calls: &[Call]) -> Option<Arc<Answer>> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.all.iter().rev().find(|answer| answer.calls == calls).cloned()
    }

    /// Put the tokens that the model wrote into a prompt, in the places of what the template wrote
    /// for the same calls.
    pub fn restore(&self, prompt: &mut Prompt, messages: &[Message], format: CallFormat<'_>) {
        let has_calls = messages.iter().any(|message| !message.tool_calls.is_empty());
        if !has_calls || self.0.lock().unwrap_or_else(PoisonError::into_inner).all.is_empty() {
            return;
        }
        let offsets = token_offsets(&prompt.text, &prompt.tokens, format.vocab);
        let (mut edits, mut from) = (Vec::new(), 0);
        for message in messages.iter().filter(|message| !message.tool_calls.is_empty()) {
            let calls =
                message.tool_calls.iter().map(|call| Call::new(&call.id, &call.name, &call.arguments));
            let Some(calls) = calls.collect::<Option<Vec<Call>>>() else { continue };
            let Some(place) = format.find(&prompt.text, from, &calls) else { continue };
            from = place.end;
            if let Some(answer) = self.answer(&calls)
                && let Some(edit) = answer.edit(&prompt.text, &offsets, place, format.vocab)
            {
                edits.push(edit);
            }
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
        let index = |offsets: &[usize], at: usize| offsets.binary_search(&at).ok();
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
    }
}
