//! Calls within a longer text, such as the prompt of a conversation.

use alloc::string::String;
use alloc::vec::Vec;

use super::calls::{Calls, Outcome};
use super::cursor::{Cursor, Step};
use super::formats::HARMONY;
use super::harmony;
use super::output::Output;
use super::scanner::Scanner;
use super::syntax::CallSyntax;
use super::tools::{Context, Tools};
use super::{FoundCalls, ReasoningFormat, Reply, ToolCall};

/// The most places in a text at which calls are tried to be read.
const MAX_TRIED: usize = 4096;
/// The bytes that are read in vain, as a multiple of the text: what looks like a call may go on to
/// the end of the text.
const MAX_IN_VAIN: usize = 4;

/// Return all calls in `text`, in their order.
pub(super) fn all(syntax: &'static CallSyntax, text: &str, tools: &Tools) -> Vec<FoundCalls> {
    let is_harmony = syntax.name == HARMONY;
    let (mut found, mut end, mut n_in_vain) = (Vec::new(), 0, 0);
    for (at, n_marker) in places(syntax, text) {
        if at < end || n_in_vain > MAX_IN_VAIN * text.len() {
            continue;
        }
        let read = match is_harmony {
            true => message(text, at, end, tools),
            false => section(syntax, text, at, n_marker, tools),
        };
        match read {
            Ok(calls) => {
                end = calls.range.end;
                found.push(calls);
            }
            Err(n) => n_in_vain += n,
        }
    }
    found
}

/// Return the offsets at which calls may begin, ascending, and the lengths of the markers there
/// that are read already.
fn places(syntax: &CallSyntax, text: &str) -> Vec<(usize, usize)> {
    if syntax.name == HARMONY {
        return text.match_indices(harmony::MESSAGE).map(|(at, _)| (at, 0)).take(MAX_TRIED).collect();
    }
    let section = syntax.section.as_ref().map(|section| section.begin);
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (begin, n_marker) in [(section, section.map_or(0, str::len)), (syntax.begin(), 0)] {
        let found = begin.into_iter().flat_map(|begin| text.match_indices(begin));
        places.extend(found.map(|(at, _)| (at, n_marker)).take(MAX_TRIED));
    }
    if syntax.is_bare {
        let found = text.match_indices(['{', '[']).map(|(at, _)| at);
        places.extend(found.filter(|at| is_line_start(text, *at)).map(|at| (at, 0)).take(MAX_TRIED));
    }
    places.sort_unstable();
    places
}

/// Return true if nothing but a marker or a line break stands before `at`.
fn is_line_start(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| before.is_empty() || before.ends_with(['\n', '>', ']']))
}

/// Read calls at `at`, or return the number of bytes that were read in vain.
fn section(
    syntax: &'static CallSyntax,
    text: &str,
    at: usize,
    n_marker: usize,
    tools: &Tools,
) -> Result<FoundCalls, usize> {
    let text = text.get(at..).unwrap_or("");
    let mut output = Output::new(ReasoningFormat::None, true);
    let mut calls = Calls::new(syntax, n_marker, &output);
    let outcome = calls.advance(text, true, Context { tools, parallel: true }, &mut output);
    let (end, n_read) = match outcome {
        Outcome::Over(end) => (end, end),
        Outcome::NoCall(end, to) => (end, to),
        Outcome::More => (0, text.len()),
    };
    let (mut deltas, mut reply) = (Vec::new(), Reply::default());
    output.take(&mut deltas);
    deltas.iter().for_each(|delta| reply.add(delta));
    match reply.tool_calls.is_empty() {
        true => Err(n_read),
        false => Ok(FoundCalls { range: at..at + end, calls: reply.tool_calls }),
    }
}

/// Read the call of gpt-oss whose body begins behind the marker at `at`, or return the number of
/// bytes that were read in vain. Its header begins behind the role, and not before `from`.
fn message(text: &str, at: usize, from: usize, tools: &Tools) -> Result<FoundCalls, usize> {
    let from = text.ceil_char_boundary(at.saturating_sub(harmony::MAX_HEADER).max(from));
    let before = text.get(from..at).unwrap_or("");
    let start = before.rfind(harmony::ROLE).map_or(0, |start| start + harmony::ROLE.len());
    let header = before.get(start..).unwrap_or("");
    let Some(tool) = harmony::recipient(header, tools) else { return Err(before.len()) };
    let mut arguments = String::new();
    let mut cursor = Cursor { text, at: at + harmony::MESSAGE.len(), ended: true };
    if Scanner::new().advance(&mut cursor, &mut arguments) != Step::Done {
        return Err(cursor.at - at);
    }
    let call = ToolCall { id: None, name: tool.name.clone(), arguments };
    Ok(FoundCalls { range: from + start..cursor.at, calls: Vec::from([call]) })
}
