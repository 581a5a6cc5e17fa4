//! Text that knows the origin of each of its bytes.
//!
//! A chat template puts text that users typed between control tokens. Both are text while the
//! template runs, so a text carries its origins along. [`Str`] is a shared immutable text, and
//! [`Buf`] builds one. Every function here preserves origins. The interpreter makes text through
//! these functions alone, so it cannot lose them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// The origin of a span of rendered text.
///
/// # Example
/// ```
/// use backstitch_models::chat::{ChatTemplate, Conversation, Message, Origin};
///
/// let template = ChatTemplate::from_source("[{{ messages[0].content }}]")?;
/// let message = Message { role: "user", content: "Hi" };
/// let rendered = template.render(&Conversation::new([message]))?;
/// let spans: Vec<_> = rendered.spans().collect();
/// assert_eq!(spans[1], ("Hi", Origin::Value));
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The template itself, or the texts of the tokens that begin and end a sequence. Control
    /// tokens in it are control tokens.
    Template,
    /// A message, a tool, a document or another variable. Control tokens that are written out in it
    /// are text.
    Value,
}

impl Origin {
    /// Return the other origin.
    fn other(self) -> Self {
        match self {
            Self::Template => Self::Value,
            Self::Value => Self::Template,
        }
    }
}

/// The origins of the bytes of a text: spans of alternating origin.
#[derive(Clone, Debug)]
struct Spans {
    /// The origin of the first span.
    first: Origin,
    /// The end of each span but the last; strictly increasing, none 0 or the length of the text.
    borders: Vec<u32>,
}

impl Spans {
    /// Return the origin of span `i`.
    fn origin(&self, i: usize) -> Origin {
        if i.is_multiple_of(2) { self.first } else { self.first.other() }
    }

    /// Return the index of the span that contains the byte at `at`.
    fn span_at(&self, at: usize) -> usize {
        self.borders.partition_point(|&border| border as usize <= at)
    }
}

/// A shared, immutable text with the origin of every byte. Comparisons ignore origins.
#[derive(Clone, Debug)]
pub(super) struct Str(Arc<Inner>);

/// The shared contents of a [`Str`].
#[derive(Debug)]
struct Inner {
    /// The text.
    text: Box<str>,
    /// The origins of its bytes.
    spans: Spans,
}

impl Str {
    /// Make a text of one origin.
    pub(super) fn new(text: impl Into<Box<str>>, origin: Origin) -> Self {
        Self(Arc::new(Inner { text: text.into(), spans: Spans { first: origin, borders: Vec::new() } }))
    }

    /// Make a text of the template's own.
    pub(super) fn template(text: &str) -> Self {
        Self::new(text, Origin::Template)
    }

    /// Return the text.
    pub(super) fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Return the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.text.len()
    }

    /// Return true if the text is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.text.is_empty()
    }

    /// Return the spans of the whole text.
    pub(super) fn spans(&self) -> impl Iterator<Item = (&str, Origin)> {
        self.spans_in(0..self.len())
    }

    /// Return the spans of `range`, cut at its ends; nothing if it is out of bounds or splits a
    /// character.
    pub(super) fn spans_in(&self, range: Range<usize>) -> impl Iterator<Item = (&str, Origin)> {
        let spans = &self.0.spans;
        let range = if self.0.text.get(range.clone()).is_some() { range } else { 0..0 };
        let mut at = range.start;
        let mut span = spans.span_at(at);
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let end = spans.borders.get(span).map_or(range.end, |&border| range.end.min(border as usize));
            let piece = (self.0.text.get(at..end)?, spans.origin(span));
            (at, span) = (end, span + 1);
            Some(piece)
        })
    }

    /// Return the text in `range`; empty if it is out of bounds or splits a character.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        if range == (0..self.len()) {
            return self.clone();
        }
        let mut out = Buf::default();
        out.push_range(self, range);
        out.finish()
    }

    /// Return the text of `part`, a slice of this very text, with its origins.
    pub(super) fn subslice(&self, part: &str) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(self.as_str().as_ptr() as usize);
        self.slice(start..start.saturating_add(part.len()))
    }

    /// Return the characters with their origins.
    pub(super) fn chars(&self) -> impl Iterator<Item = (char, Origin)> {
        self.spans().flat_map(|(text, origin)| text.chars().map(move |c| (c, origin)))
    }

    /// Return the text with `change` applied to every span.
    pub(super) fn map_spans(&self, mut change: impl FnMut(&str) -> String) -> Self {
        let mut out = Buf::default();
        for (text, origin) in self.spans() {
            out.push(&change(text), origin);
        }
        out.finish()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Str {}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

/// A text under construction.
#[derive(Clone, Debug)]
pub(super) struct Buf {
    /// The text so far.
    text: String,
    /// The origins of its bytes.
    spans: Spans,
}

impl Default for Buf {
    fn default() -> Self {
        Self { text: String::new(), spans: Spans { first: Origin::Template, borders: Vec::new() } }
    }
}

impl Buf {
    /// Append a text of one origin.
    pub(super) fn push(&mut self, text: &str, origin: Origin) {
        if text.is_empty() {
            return;
        }
        if self.text.is_empty() {
            self.spans.first = origin;
        } else if self.spans.origin(self.spans.borders.len()) != origin {
            // Budgets keep texts far below 4 GiB.
            self.spans.borders.push(self.text.len() as u32);
        }
        self.text.push_str(text);
    }

    /// Append a character.
    pub(super) fn push_char(&mut self, c: char, origin: Origin) {
        self.push(c.encode_utf8(&mut [0; 4]), origin);
    }

    /// Append a text with its origins.
    pub(super) fn push_str(&mut self, text: &Str) {
        self.push_range(text, 0..text.len());
    }

    /// Append a range of a text with its origins.
    pub(super) fn push_range(&mut self, text: &Str, range: Range<usize>) {
        text.spans_in(range).for_each(|(piece, origin)| self.push(piece, origin));
    }

    /// Return the text built.
    pub(super) fn finish(self) -> Str {
        Str(Arc::new(Inner { text: self.text.into(), spans: self.spans }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mixed(pieces: &[(String, bool)]) -> (Str, Vec<bool>) {
        let (mut out, mut wanted) = (Buf::default(), Vec::new());
        for (text, is_value) in pieces {
            out.push(text, if *is_value { Origin::Value } else { Origin::Template });
            wanted.extend(core::iter::repeat_n(*is_value, text.len()));
        }
        (out.finish(), wanted)
    }

    fn origins(text: &Str) -> Vec<bool> {
        let of_run =
            |(piece, origin): (&str, Origin)| core::iter::repeat_n(origin == Origin::Value, piece.len());
        text.spans().flat_map(of_run).collect()
    }

    proptest! {
        #[test]
        fn every_byte_keeps_its_origin(
            pieces in proptest::collection::vec(("[aé]{0,4}", any::<bool>()), 0..8),
            start in 0_usize..20,
            len in 0_usize..20,
        ) {
            let (text, wanted) = mixed(&pieces);
            prop_assert_eq!(&origins(&text), &wanted);
            let part = text.slice(start..start + len);
            if text.as_str().get(start..start + len).is_some() {
                prop_assert_eq!(part.as_str(), &text.as_str()[start..start + len]);
                prop_assert_eq!(&origins(&part), &wanted[start..start + len]);
            } else {
                prop_assert!(part.is_empty());
            }
            let mut twice = Buf::default();
            twice.push_str(&text);
            twice.push_str(&part);
            prop_assert_eq!(origins(&twice.finish()), [wanted, origins(&part)].concat());
        }
    }
}
