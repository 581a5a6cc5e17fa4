//! RWKV's tokeniser: at each position of a text the longest token that matches, in bytes and not in
//! characters.
//!
//! Token texts are written with escapes, because a token need not be valid UTF-8. The index is a
//! sorted list that is narrowed byte by byte. This is the search of a trie, but no file can make
//! the list degenerate.

use alloc::vec::Vec;
use core::cmp::Reverse;

use backstitch_kv::Token;

use super::error::VocabError;
use super::pieces::Pieces;
use super::reserve::try_collect;

/// The longest token in bytes, four times that of RWKV's own vocabulary. A text of `n` bytes takes
/// at most this times `n` steps.
pub(super) const LONGEST: usize = 512;

/// A longest-match tokeniser.
#[derive(Clone, Debug, Default)]
pub(super) struct Rwkv {
    /// All tokens with text, sorted by their bytes; of equal ones the last comes first.
    order: Vec<Token>,
    /// The end in `order` of the tokens that begin with each byte.
    ends: Vec<u32>,
    unk: Option<Token>,
}

impl Rwkv {
    /// Build the tokeniser for these pieces of tokens. `unk` is the unknown token.
    ///
    /// # Errors
    /// `TooLong` for a token of more than [`LONGEST`] bytes, `OutOfMemory`.
    pub(super) fn new(pieces: &Pieces, unk: Option<Token>) -> Result<Self, VocabError> {
        let mut order = try_collect(pieces.len(), (0..).map(Token))?;
        if let Some(&Token(id)) = order.iter().find(|&&token| pieces.of(token).len() > LONGEST) {
            let found = pieces.of(Token(id)).len();
            return Err(VocabError::TooLong { index: id as usize, found, limit: LONGEST });
        }
        order.retain(|&token| !pieces.of(token).is_empty());
        order.sort_unstable_by_key(|&token| (pieces.of(token), Reverse(token)));
        let end = |byte: u8| order.partition_point(|&token| pieces.of(token).first() <= Some(&byte));
        let ends = (0..=u8::MAX).map(|byte| end(byte) as u32).collect();
        Ok(Self { order, ends, unk })
    }

    /// Append the tokens of `text`. A byte that no token begins with becomes the unknown token.
    pub(super) fn tokenize(&self, text: &str, pieces: &Pieces, out: &mut Vec<Token>) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let found = self.longest(rest, pieces);
            out.extend(found.or(self.unk));
            let n = found.map_or(1, |token| pieces.of(token).len());
            rest = rest.get(n..).unwrap_or(&[]);
        }
    }

    /// Return the longest token that `text` begins with.
    fn longest(&self, text: &[u8], pieces: &Pieces) -> Option<Token> {
        let first = usize::from(*text.first()?);
        let end = |byte: usize| self.ends.get(byte).map_or(0, |&end| end as usize);
        let start = first.checked_sub(1).map_or(0, end);
        let mut fit = self.order.get(start..end(first)).unwrap_or(&[]);
        let mut best = None;
        for len in 1.. {
            // Of tokens with the same beginning the shortest comes first.
            best = fit.first().copied().filter(|&token| pieces.of(token).len() == len).or(best);
            let Some(next) = text.get(len).filter(|_| !fit.is_empty()) else { break };
            let byte = |token: &Token| pieces.of(*token).get(len);
            let start = fit.partition_point(|token| byte(token) < Some(next));
            fit = fit.get(start..).unwrap_or(&[]);
            let end = fit.partition_point(|token| byte(token) == Some(next));
            fit = fit.get(..end).unwrap_or(&[]);
        }
        best
    }
}

/// Append the bytes of a token text: `\t`, `\n` and `\r` as usual, `\x` and two hexadecimal digits
/// for a byte, any other character behind a backslash for itself.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        let (byte, n) = match (first, after) {
            (b'\\', [b't', ..]) => (b'\t', 1),
            (b'\\', [b'n', ..]) => (b'\n', 1),
            (b'\\', [b'r', ..]) => (b'\r', 1),
            (b'\\', [b'x', digits @ ..]) => match hex(digits) {
                Some(byte) => (byte, 3),
                None => (b'x', 1),
            },
            (b'\\', [other, ..]) => (*other, 1),
            (other, _) => (*other, 0),
        };
        out.push(byte);
        rest = rest.get(n..).unwrap_or(&[]);
    }
}

/// Return the byte that the first two characters stand for.
fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |i: usize| char::from(*digits.get(i)?).to_digit(16);
    u8::try_from(16 * digit(0)? + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::{AddSpecial, ParseSpecial, Vocab, VocabSource, WriteSpecial};
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    fn vocab(tokens: &[&str]) -> Vocab {
        let mut source = VocabSource { model: "rwkv", tokens, ..VocabSource::default() };
        source.types = vec![1; tokens.len()];
        source.types[0] = 3;
        source.roles.unk = Some(0);
        Vocab::new(&source).unwrap()
    }

    fn tokens(vocab: &Vocab, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        vocab.tokenize(text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
        tokens.iter().map(|token| token.0).collect()
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let cases: [(&str, &[u8]); 9] = [
            ("a b", b"a b"),
            (r"\t\n\r", b"\t\n\r"),
            (r"\x00\xff\x4a", b"\0\xff\x4a"),
            (r"\\x41", br"\x41"),
            (r#"\'\""#, br#"'""#),
            (r"\x4", b"x4"),
            (r"\xg0", b"xg0"),
            (r"a\", br"a\"),
            ("", b""),
        ];
        for (text, wanted) in cases {
            let mut out = Vec::new();
            unescape(text.as_bytes(), &mut out);
            assert_eq!(out, wanted, "{text}");
        }
    }

    #[test]
    fn the_longest_token_is_taken_and_unknown_bytes_are_said_to_be() {
        let vocab = vocab(&["<s>", "a", "ab", "abcd", "b", r"\xc3", r"\xa9", "c", "", "b"]);
        assert_eq!(tokens(&vocab, "abcabcd"), [2, 7, 3]);
        assert_eq!(tokens(&vocab, "abcab"), [2, 7, 2]);
        // Of equal tokens the last is found, as in the trie that others build.
        assert_eq!(tokens(&vocab, "bé"), [9, 5, 6]);
        assert_eq!(tokens(&vocab, "aza"), [1, 0, 1]);
        assert_eq!(tokens(&vocab, ""), [0; 0]);
        assert_eq!(vocab.detokenize(&[0, 5, 6, 3].map(Token), WriteSpecial::Yes), "<s>éabcd".as_bytes());
    }

    #[test]
    fn a_token_that_would_make_texts_slow_is_refused() {
        let long = "a".repeat(LONGEST + 1);
        let source = VocabSource { model: "rwkv", tokens: &["a", &long], ..VocabSource::default() };
        let found = LONGEST + 1;
        assert_eq!(Vocab::new(&source).unwrap_err(), VocabError::TooLong { index: 1, found, limit: LONGEST });
    }

    proptest! {
        #[test]
        fn it_is_what_trying_every_token_gives(
            pieces in proptest::collection::vec("[ab]{1,4}", 1..12),
            text in "[abc]{0,30}",
        ) {
            let all: Vec<&str> = ["?"].into_iter().chain(pieces.iter().map(String::as_str)).collect();
            let vocab = vocab(&all);
            let (mut wanted, mut rest) = (vec![], text.as_str());
            while !rest.is_empty() {
                let fits = (1..all.len()).filter(|&id| rest.starts_with(all[id]));
                let found = fits.max_by_key(|&id| (all[id].len(), id));
                wanted.push(found.unwrap_or(0) as u32);
                rest = &rest[found.map_or(1, |id| all[id].len())..];
            }
            prop_assert_eq!(tokens(&vocab, &text), wanted);
        }
    }
}
