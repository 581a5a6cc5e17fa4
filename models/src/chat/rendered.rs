//! The text that a template makes.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::text::{Origin, Str};
use crate::Token;
use crate::vocab::{AddSpecial, Vocab};

/// A conversation as its model is to read it: a text, and of each part of it, who wrote it.
///
/// A person may type `<|im_end|>`. Turned into tokens by [`tokenize`](Self::tokenize) this stays the text
/// that it is, because only the template's own parts are searched for control tokens. Turning
/// [`as_str`](Self::as_str) into tokens with [`ParseSpecial::Yes`](crate::vocab::ParseSpecial::Yes) would let
/// everybody forge them.
#[derive(Clone, Debug)]
pub struct Rendered(Str);

impl Rendered {
    pub(super) fn new(text: Str) -> Self {
        Self(text)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The parts of the text in order, neighbours with different origins.
    pub fn parts(&self) -> impl Iterator<Item = (&str, Origin)> {
        self.0.runs()
    }

    /// The byte ranges that the template itself wrote, in order.
    fn own_ranges(&self) -> Vec<Range<usize>> {
        let mut at = 0;
        let mut ranges = Vec::new();
        for (text, origin) in self.parts() {
            if origin == Origin::Template {
                ranges.push(at..at + text.len());
            }
            at += text.len();
        }
        ranges
    }

    /// Append the tokens of the text to `out`. Control tokens are recognised where all of their bytes are the
    /// template's; everything else is tokenised as if the text came from one writer, so that no token changes
    /// where parts meet.
    ///
    /// Most templates write the token at the beginning of a sequence themselves. [`AddSpecial::Yes`], the
    /// right choice for a whole conversation, adds it where the vocabulary asks for it and the template did
    /// not write it, so it is never there twice; the same holds for the token at the end. llama.cpp does
    /// this, too.
    pub fn tokenize(&self, vocab: &Vocab, add: AddSpecial, out: &mut Vec<Token>) {
        let start = out.len();
        vocab.tokenize_trusted(self.as_str(), &self.own_ranges(), AddSpecial::No, out);
        if add == AddSpecial::No {
            return;
        }
        if let Some(bos) = vocab.bos().filter(|bos| vocab.adds_bos() && out.get(start) != Some(bos)) {
            out.insert(start, bos);
        }
        if let Some(eos) = vocab.eos().filter(|eos| vocab.adds_eos() && out.last() != Some(eos)) {
            out.push(eos);
        }
    }
}

impl fmt::Display for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Rendered> for String {
    fn from(rendered: Rendered) -> Self {
        rendered.as_str().into()
    }
}
