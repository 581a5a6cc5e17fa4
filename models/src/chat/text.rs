//! Text that knows who wrote each of its bytes.
//!
//! A chat template puts what people typed between control tokens. Both are text while the template runs, so a
//! text carries its origin along: [`Str`] is a shared immutable text, [`Buf`] builds one. Every function here
//! keeps origins, so the interpreter cannot lose them: it makes text through these functions alone.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// The source of a piece of rendered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The template itself, or the texts of the tokens that begin and end a sequence: control tokens are
    /// meant.
    Template,
    /// A message, a tool, a document or another variable: control tokens written out in it are text.
    Value,
}

impl Origin {
    fn other(self) -> Self {
        match self {
            Self::Template => Self::Value,
            Self::Value => Self::Template,
        }
    }
}

/// The origins of the bytes of a text: runs of alternating origin.
#[derive(Clone, Debug)]
struct Runs {
    /// The origin of the first run.
    first: Origin,
    /// Where each run but the last ends; strictly increasing, none 0 or the length of the text.
    borders: Vec<u32>,
}

impl Runs {
    /// The origin of run `i`.
    fn origin(&self, i: usize) -> Origin {
        if i.is_multiple_of(2) { self.first } else { self.first.other() }
    }

    /// The run that holds the byte at `at`.
    fn run_at(&self, at: usize) -> usize {
        self.borders.partition_point(|&border| border as usize <= at)
    }
}

/// A shared, immutable text with the origin of every byte.
#[derive(Clone, Debug)]
pub(super) struct Str(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: Box<str>,
    runs: Runs,
}

impl Str {
    pub(super) fn new(text: impl Into<Box<str>>, origin: Origin) -> Self {
        Self(Arc::new(Inner { text: text.into(), runs: Runs { first: origin, borders: Vec::new() } }))
    }

    pub(super) fn template(text: &str) -> Self {
        Self::new(text, Origin::Template)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0.text
    }

    pub(super) fn len(&self) -> usize {
        self.0.text.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.text.is_empty()
    }

    /// The runs of the whole text.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&str, Origin)> {
        self.runs_in(0..self.len())
    }

    /// The runs of `range`, cut at its ends; nothing if it is out of bounds or cuts a character.
    pub(super) fn runs_in(&self, range: Range<usize>) -> impl Iterator<Item = (&str, Origin)> {
        let runs = &self.0.runs;
        let range = if self.0.text.get(range.clone()).is_some() { range } else { 0..0 };
        let mut at = range.start;
        let mut run = runs.run_at(at);
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let end = runs.borders.get(run).map_or(range.end, |&border| range.end.min(border as usize));
            let piece = (self.0.text.get(at..end)?, runs.origin(run));
            (at, run) = (end, run + 1);
            Some(piece)
        })
    }

    /// The part in `range`; empty if it is out of bounds or cuts a character.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        if range == (0..self.len()) {
            return self.clone();
        }
        let mut out = Buf::default();
        out.push_range(self, range);
        out.finish()
    }

    /// The part that `part`, a part of this very text, stands for.
    pub(super) fn part(&self, part: &str) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(self.as_str().as_ptr() as usize);
        self.slice(start..start.saturating_add(part.len()))
    }

    /// The characters with their origins.
    pub(super) fn chars(&self) -> impl Iterator<Item = (char, Origin)> {
        self.runs().flat_map(|(text, origin)| text.chars().map(move |c| (c, origin)))
    }

    /// The text with every run passed through `change`.
    pub(super) fn map_runs(&self, mut change: impl FnMut(&str) -> String) -> Self {
        let mut out = Buf::default();
        for (text, origin) in self.runs() {
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
    text: String,
    runs: Runs,
}

impl Default for Buf {
    fn default() -> Self {
        Self { text: String::new(), runs: Runs { first: Origin::Template, borders: Vec::new() } }
    }
}

impl Buf {
    pub(super) fn push(&mut self, text: &str, origin: Origin) {
        if text.is_empty() {
            return;
        }
        if self.text.is_empty() {
            self.runs.first = origin;
        } else if self.runs.origin(self.runs.borders.len()) != origin {
            // Budgets keep texts far below 4 GiB.
            self.runs.borders.push(self.text.len() as u32);
        }
        self.text.push_str(text);
    }

    pub(super) fn push_char(&mut self, c: char, origin: Origin) {
        self.push(c.encode_utf8(&mut [0; 4]), origin);
    }

    pub(super) fn push_str(&mut self, text: &Str) {
        self.push_range(text, 0..text.len());
    }

    pub(super) fn push_range(&mut self, text: &Str, range: Range<usize>) {
        text.runs_in(range).for_each(|(piece, origin)| self.push(piece, origin));
    }

    pub(super) fn finish(self) -> Str {
        Str(Arc::new(Inner { text: self.text.into(), runs: self.runs }))
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
        text.runs().flat_map(of_run).collect()
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
