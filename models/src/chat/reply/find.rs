//! Calls within a longer text, such as the prompt of a conversation.

use alloc::vec::Vec;
use core::ops::Range;

use super::calls::{Calls, Outcome};
use super::cursor::{Cursor, Step};
use super::harmony;
use super::output::Output;
use super::scanner::Scanner;
use super::syntax::CallSyntax;
use super::tools::{Context, Tools};
use super::{HARMONY, ReasoningFormat, Reply, ToolCall};

/// The most places in a text at which calls are tried to be read.
const MAX_TRIED: usize = 4096;

/// Return the range of the first calls in `text`, with the markers around them, and the calls.
pub(super) fn first(
    syntax: &'static CallSyntax,
    text: &str,
    tools: &Tools,
) -> Option<(Range<usize>, Vec<ToolCall>)> {
    if syntax.name == HARMONY {
        return text.match_indices(harmony::MESSAGE).find_map(|(at, _)| message(text, at, tools));
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
    places.into_iter().find_map(|(at, n_marker)| {
        let (range, calls) = read(syntax, text.get(at..)?, n_marker, tools)?;
        Some((at + range.start..at + range.end, calls))
    })
}

/// Return true if nothing but a marker or a line break stands before `at`.
fn is_line_start(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| before.is_empty() || before.ends_with(['\n', '>', ']']))
}

/// Read calls at the beginning of `text`.
fn read(
    syntax: &'static CallSyntax,
    text: &str,
    n_marker: usize,
    tools: &Tools,
) -> Option<(Range<usize>, Vec<ToolCall>)> {
    let mut output = Output::new(ReasoningFormat::None, true);
    let mut calls = Calls::new(syntax, n_marker, &output);
    let outcome = calls.advance(text, true, Context { tools, parallel: true }, &mut output);
    let (Outcome::Over(end) | Outcome::NoCall(end, _)) = outcome else { return None };
    let (mut deltas, mut reply) = (Vec::new(), Reply::default());
    output.take(&mut deltas);
    deltas.iter().for_each(|delta| reply.add(delta));
    (!reply.tool_calls.is_empty()).then_some((0..end, reply.tool_calls))
}

/// Read a call of gpt-oss whose body begins at the marker at `at`. Its header begins behind the
/// role.
fn message(text: &str, at: usize, tools: &Tools) -> Option<(Range<usize>, Vec<ToolCall>)> {
    let before = text.get(..at)?;
    let start = before.rfind(harmony::ROLE).map_or(0, |start| start + harmony::ROLE.len());
    let tool = harmony::recipient(before.get(start..)?, tools)?;
    let mut arguments = alloc::string::String::new();
    let mut cursor = Cursor { text, at: at + harmony::MESSAGE.len(), ended: true };
    if Scanner::new().advance(&mut cursor, &mut arguments) != Step::Done {
        return None;
    }
    let call = ToolCall { id: None, name: tool.name.clone(), arguments };
    Some((start..cursor.at, Vec::from([call])))
}
