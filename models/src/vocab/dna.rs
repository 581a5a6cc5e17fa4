//! Byte-pair encoding of text in which `<dna>` and `</dna>` enclose genetic sequences (`hybriddna`
//! in GGUF). A sequence becomes tokens of six bases each, the last one filled up with A.
//!
//! The tokens of six bases end in a private character in the file, which tells them from tokens of
//! ordinary text that look the same.

use alloc::vec::Vec;

use backstitch_kv::Token;

use super::bpe::Bpe;
use super::strings::Strings;

/// The private character at the end of the tokens of bases.
const MARK: &[u8] = "\u{e000}".as_bytes();
/// The number of bases of a token.
const BASES: usize = 6;
const OPEN: &str = "<dna>";
const CLOSE: &str = "</dna>";

/// A byte-pair tokeniser with tokens of bases.
#[derive(Clone, Debug)]
pub(super) struct Dna {
    bpe: Bpe,
    /// The tokens of sequences; `None` if the vocabulary lacks one of them.
    tags: Option<Tags>,
}

#[derive(Clone, Copy, Debug)]
struct Tags {
    open: Token,
    close: Token,
    /// The token for six characters that are not all bases.
    unknown: Token,
}

impl Dna {
    /// Make the tokeniser of a vocabulary whose token texts are `texts`.
    pub(super) fn new(bpe: Bpe, texts: &Strings) -> Self {
        let find = |text: &str| texts.find(text.as_bytes()).map(Token);
        let tags = match (find(OPEN), find(CLOSE), find("<oov>")) {
            (Some(open), Some(close), Some(unknown)) => Some(Tags { open, close, unknown }),
            _ => None,
        };
        Self { bpe, tags }
    }

    /// Return the text of token `id` without the private character.
    pub(super) fn text_of<'t>(&self, id: u32, text: &'t [u8]) -> &'t [u8] {
        let is_bases = self.tags.is_some_and(|tags| id > tags.unknown.0);
        text.strip_suffix(MARK).filter(|_| is_bases).unwrap_or(text)
    }

    /// Append the tokens of `text`.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let Some(tags) = self.tags else { return self.bpe.tokenize(text, texts, out) };
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(OPEN) {
            self.bpe.tokenize(before, texts, out);
            out.push(tags.open);
            let (sequence, after) = match behind.split_once(CLOSE) {
                Some((sequence, after)) => (sequence, Some(after)),
                None => (behind, None),
            };
            bases(sequence, tags.unknown, texts, out);
            let Some(after) = after else { return };
            out.push(tags.close);
            rest = after;
        }
        self.bpe.tokenize(rest, texts, out);
    }
}

/// Append the tokens of a sequence.
fn bases(sequence: &str, unknown: Token, texts: &Strings, out: &mut Vec<Token>) {
    for bases in sequence.as_bytes().chunks(BASES) {
        let mut text: Vec<u8> = bases.to_ascii_uppercase();
        text.resize(BASES, b'A');
        text.extend_from_slice(MARK);
        out.push(texts.find(&text).map_or(unknown, Token));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AddSpecial, ParseSpecial, Vocab, VocabError, VocabSource, WriteSpecial};
    use super::*;

    #[test]
    fn sequences_become_tokens_of_six_bases() -> Result<(), VocabError> {
        let vocab = Vocab::new(&VocabSource {
            model: "hybriddna",
            tokens: &["C", "a", "<dna>", "</dna>", "<oov>", "CCCCCC\u{e000}", "ACAAAA\u{e000}"],
            ..VocabSource::default()
        })?;
        let tokens = |text: &str| {
            let mut out = Vec::new();
            vocab.tokenize(text, AddSpecial::No, ParseSpecial::No, &mut out);
            out.iter().map(|token| token.0).collect::<Vec<_>>()
        };
        assert_eq!(tokens("aC<dna>ccccccAC</dna>a"), [1, 0, 2, 5, 6, 3, 1]);
        assert_eq!(tokens("<dna>CCCCCCé"), [2, 5, 4]);
        assert_eq!(tokens("<dna></dna>"), [2, 3]);
        assert_eq!(tokens("CCCCCC"), [0; 6]);
        let ids = [2, 5, 6, 3].map(Token);
        assert_eq!(vocab.detokenize(&ids, WriteSpecial::Yes), b"<dna>CCCCCCACAAAA</dna>");
        Ok(())
    }

    #[test]
    fn without_the_tokens_of_sequences_text_is_text() -> Result<(), VocabError> {
        let source = VocabSource { model: "hybriddna", tokens: &["a", "C"], ..VocabSource::default() };
        let mut out = Vec::new();
        Vocab::new(&source)?.tokenize("<dna>C", AddSpecial::No, ParseSpecial::No, &mut out);
        assert_eq!(out, [Token(0), Token(1)]);
        Ok(())
    }
}
