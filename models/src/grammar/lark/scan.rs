//! The pieces of a Lark grammar, as far as its limits depend on them.
//!
//! The library's lexer takes the longest piece at a place, as this one does. A text that it does
//! not read to its end is no grammar, so what stands behind a fault does not matter.

use alloc::borrow::ToOwned;

use serde_json::{Deserializer, Value};

use crate::grammar::error::{GrammarError, Language, place_of, shortened};

/// Keywords before a JSON value.
const BEFORE_JSON: [&str; 3] = ["%json", "%regex", "%llguidance"];

/// A piece of a grammar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece<'t> {
    /// The name of a rule or of a terminal.
    Name(&'t str),
    /// A bracket that opens, or a colon.
    Open,
    /// A `|`.
    Bar,
    /// The end of a line.
    Line,
    /// A regular expression, or a text that becomes one.
    Pattern(&'t str),
    /// The schema behind `%json`, or another value in JSON.
    Json(Value),
    /// Anything else.
    Other,
}

/// Return the pieces of `text`.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, GrammarError>> {
    let mut pos = 0;
    core::iter::from_fn(move || {
        let rest = text.get(pos..).filter(|rest| !rest.is_empty())?;
        let piece = piece(rest);
        pos += piece.as_ref().map_or(rest.len(), |(_, len)| *len);
        Some(piece.map(|(piece, _)| piece).map_err(|reason| fault(text, rest, reason)))
    })
}

/// Return the first piece of `rest` and its length, or what should be there.
fn piece(rest: &str) -> Result<(Piece<'_>, usize), &'static str> {
    if let Some(keyword) = BEFORE_JSON.iter().find(|keyword| rest.starts_with(**keyword)) {
        return json(rest, keyword.len());
    }
    let Some(first) = rest.chars().next() else { return Ok((Piece::Other, 0)) };
    Ok(match first {
        '(' | '[' | '{' | ':' => (Piece::Open, 1),
        '|' => (Piece::Bar, 1),
        '\n' => (Piece::Line, 1),
        ' ' | '\t' | '\r' => (Piece::Other, 1),
        '#' => (Piece::Other, rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("//") => (Piece::Other, rest.find('\n').unwrap_or(rest.len())),
        '/' => (Piece::Pattern(rest.get(..closed(rest, '/')).unwrap_or(rest)), closed(rest, '/')),
        '"' => string(rest),
        '<' => (Piece::Other, rest.find('>').map_or(rest.len(), |end| end + 1)),
        'a'..='z' | 'A'..='Z' | '_' => name(rest),
        c => (Piece::Other, c.len_utf8()),
    })
}

/// Return the value behind a keyword.
fn json(rest: &str, keyword: usize) -> Result<(Piece<'_>, usize), &'static str> {
    let behind = rest.get(keyword..).unwrap_or_default();
    let mut values = Deserializer::from_str(behind).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok((Piece::Json(value), keyword + values.byte_offset())),
        _ => Err("a JSON value behind it"),
    }
}

/// Return a string. One that ignores the case is a regular expression.
fn string(rest: &str) -> (Piece<'_>, usize) {
    let len = closed(rest, '"');
    match rest.get(len..).is_some_and(|behind| behind.starts_with('i')) {
        true => (Piece::Pattern(rest.get(..len).unwrap_or(rest)), len + 1),
        false => (Piece::Other, len),
    }
}

/// Return the length of what begins with a byte and ends with the next `end` that has no backslash
/// before it.
fn closed(rest: &str, end: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == end => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Return a name. Rules have small letters and terminals capital ones; both may begin with a `_`.
fn name(rest: &str) -> (Piece<'_>, usize) {
    let letters = rest.strip_prefix('_').unwrap_or(rest);
    let start = rest.len() - letters.len();
    let is_part = |c: char| match letters.starts_with(|c: char| c.is_ascii_uppercase()) {
        true => c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_' || c == '-',
        false => c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-',
    };
    match letters.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => {
            let len = start + letters.find(|c: char| !is_part(c)).unwrap_or(letters.len());
            (Piece::Name(rest.get(..len).unwrap_or(rest)), len)
        }
        false => (Piece::Other, 1),
    }
}

fn fault(text: &str, rest: &str, wanted: &str) -> GrammarError {
    GrammarError::Syntax {
        language: Language::Lark,
        place: place_of(text, text.len() - rest.len()),
        found: shortened(rest.lines().next().unwrap_or_default(), 40),
        wanted: wanted.to_owned(),
    }
}
