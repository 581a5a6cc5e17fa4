//! From tokens back to text: tidying spaces, and characters that span tokens.

use alloc::string::String;
use alloc::vec::Vec;
use backstitch_kv::Token;

use super::{Vocab, WriteSpecial};

/// Remove the spaces that English text does not have: before `?`, `!`, `.` and `,`, around a lone
/// apostrophe, and before `'s`, `'m`, `'re`, `'ve`. Some vocabularies ask for it. llama.cpp does
/// the same three passes (`llama-vocab.cpp`, `detokenize`).
pub(super) fn clean_spaces(text: &[u8]) -> Vec<u8> {
    contractions(&lone_apostrophes(&punctuation(text)))
}

/// Return the byte before `i`, and the bytes from `i` on.
fn around(text: &[u8], i: usize) -> (Option<u8>, &[u8]) {
    (i.checked_sub(1).and_then(|i| text.get(i)).copied(), text.get(i..).unwrap_or(&[]))
}

fn punctuation(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for i in 0..text.len() {
        if let (Some(b' '), [b'?' | b'!' | b'.' | b',', ..]) = around(text, i) {
            out.pop();
        }
        out.extend(text.get(i));
    }
    out
}

fn lone_apostrophes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut i = 0;
    // A removed space does not count as the space before the next apostrophe.
    let mut dropped = false;
    while i < text.len() {
        let (before, rest) = around(text, i);
        let lone = before == Some(b' ') && !dropped && matches!(rest, [b'\'', b' ', ..]);
        if lone {
            out.pop();
        }
        out.extend(text.get(i));
        dropped = lone;
        i += 1 + usize::from(lone);
    }
    out
}

fn contractions(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for i in 0..text.len() {
        if let (Some(b' '), [b'\'', b's' | b'm', ..] | [b'\'', b'r' | b'v', b'e', ..]) = around(text, i) {
            out.pop();
        }
        out.extend(text.get(i));
    }
    out
}

/// A decoder that turns the pieces of tokens into text as they come.
///
/// A character may be spread over several tokens. Bytes that may still become a character are
/// withheld until it is complete. Bytes that cannot become one turn into U+FFFD, as in
/// [`String::from_utf8_lossy`].
///
/// ```
/// use backstitch_models::vocab::TextStream;
///
/// let mut stream = TextStream::default();
/// let mut text = String::new();
/// stream.push(b"caf\xc3", &mut text);
/// assert_eq!(text, "caf");
/// stream.push(b"\xa9", &mut text);
/// assert_eq!(text, "café");
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The first bytes of an incomplete character, at most three.
    pending: Vec<u8>,
}

impl TextStream {
    /// Append to `out` the text that is complete after `piece`.
    pub fn push(&mut self, piece: &[u8], out: &mut String) {
        self.pending.extend_from_slice(piece);
        let mut rest = self.pending.as_slice();
        let kept = loop {
            match core::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    break 0;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at_checked(error.valid_up_to()).unwrap_or((&[], rest));
                    out.push_str(core::str::from_utf8(valid).unwrap_or(""));
                    let Some(n_bad) = error.error_len() else { break bad.len() };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = bad.get(n_bad..).unwrap_or(&[]);
                }
            }
        };
        self.pending.drain(..self.pending.len() - kept);
    }

    /// Append to `out` the text that is complete after `token`. Hidden tokens have none unless
    /// `write` asks for it. Nothing is allocated apart from what `out` needs, once a character was
    /// incomplete.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_models::vocab::{AddSpecial, ParseSpecial, TextStream, WriteSpecial};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let (vocab, mut tokens) = (model.vocab(), Vec::new());
    /// vocab.tokenize("a cat 🐈", AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    /// let (mut stream, mut text) = (TextStream::default(), String::new());
    /// for &token in &tokens {
    ///     stream.push_token(vocab, token, WriteSpecial::No, &mut text);
    /// }
    /// stream.finish(&mut text);
    /// assert_eq!(text, "a cat 🐈");
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
    pub fn push_token(&mut self, vocab: &Vocab, token: Token, write: WriteSpecial, out: &mut String) {
        if write == WriteSpecial::Yes || !vocab.is_hidden(token) {
            self.push(vocab.piece(token), out);
        }
    }

    /// Start a new text, with capacity for pieces of `n` bytes.
    pub(crate) fn begin(&mut self, n: usize) {
        self.pending.clear();
        self.pending.reserve(n);
    }

    /// Return true if no bytes are withheld.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Append withheld bytes to `out`, as one U+FFFD, at the end of a text.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn spaces_that_english_does_not_have_are_dropped() {
        let cases = [
            ("a ?b", "a?b"),
            (" ! , .", "!,."),
            ("a  .", "a ."),
            ("it 's we 're I 'm you 've", "it's we're I'm you've"),
            ("don 't we 'll he 'd 'x '", "don 't we 'll he 'd 'x '"),
            ("a ' b", "a'b"),
            ("a ' ' b", "a'' b"),
            (" ' s", "'s"),
            ("", ""),
            ("'", "'"),
            (" '", " '"),
        ];
        for (text, wanted) in cases {
            assert_eq!(String::from_utf8_lossy(&clean_spaces(text.as_bytes())), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_character_is_held_back_until_it_is_whole() {
        let mut stream = TextStream::default();
        let mut text = String::new();
        for (byte, wanted) in "é€😀".bytes().zip(["", "é", "é", "é", "é€", "é€", "é€", "é€", "é€😀"])
        {
            stream.push(&[byte], &mut text);
            assert_eq!(text, wanted);
        }
        stream.push(b"\xe2\x82", &mut text);
        stream.finish(&mut text);
        stream.finish(&mut text);
        assert_eq!(text, "é€😀\u{fffd}");
    }

    proptest! {
        #[test]
        fn however_the_bytes_come_the_text_is_the_same(
            pieces in proptest::collection::vec(
                proptest::collection::vec(
                    prop_oneof![any::<u8>(), 0x80u8..0xc0, Just(0xe2), Just(0xf0), Just(b'a')],
                    0..6,
                ),
                0..20,
            ),
        ) {
            let (mut stream, mut text) = (TextStream::default(), String::new());
            for piece in &pieces {
                stream.push(piece, &mut text);
                prop_assert!(stream.pending.len() <= 3);
            }
            stream.finish(&mut text);
            prop_assert!(stream.is_empty());
            prop_assert_eq!(text, String::from_utf8_lossy(&pieces.concat()).to_string());
        }
    }
}
