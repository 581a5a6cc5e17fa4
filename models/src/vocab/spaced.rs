//! Byte-pair encoding of words between white space, which is dropped (`whitespace` in GGUF).

use alloc::string::String;
use alloc::vec::Vec;

use backstitch_kv::Token;

use super::bpe::Bpe;
use super::strings::Strings;

/// A byte-pair tokeniser that never sees white space.
#[derive(Clone, Debug)]
pub(super) struct Spaced {
    pub(super) bpe: Bpe,
    /// True if words are written in lower case.
    pub(super) lowercase: bool,
}

impl Spaced {
    /// Append the tokens of `text`.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let mut lower = String::new();
        for word in text.split_whitespace() {
            if self.lowercase {
                lower.clear();
                lower.extend(word.chars().flat_map(char::to_lowercase));
                self.bpe.tokenize(&lower, texts, out);
            } else {
                self.bpe.tokenize(word, texts, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AddSpecial, ParseSpecial, Vocab, VocabError, VocabSource};
    use super::*;

    fn tokens(lowercase: Option<bool>, text: &str) -> Result<Vec<u32>, VocabError> {
        let vocab = Vocab::new(&VocabSource {
            model: "whitespace",
            pre: Some("whitespace"),
            tokens: &["a", "b", "ab", "A", "<0xC3>", "<0xA9>", "中"],
            merges: &["a b"],
            lowercase,
            ..VocabSource::default()
        })?;
        let mut out = Vec::new();
        vocab.tokenize(text, AddSpecial::No, ParseSpecial::No, &mut out);
        Ok(out.iter().map(|token| token.0).collect())
    }

    #[test]
    fn white_space_is_dropped_and_case_kept_unless_the_model_says_otherwise() -> Result<(), VocabError> {
        assert_eq!(tokens(None, " ab\n\tAb ba\u{3000}")?, [2, 3, 1, 1, 0]);
        assert_eq!(tokens(Some(true), "Ab")?, [2]);
        assert!(tokens(None, " \n")?.is_empty());
        Ok(())
    }

    #[test]
    fn characters_that_are_no_tokens_fall_back_to_bytes() -> Result<(), VocabError> {
        assert_eq!(tokens(None, "é中à")?, [4, 5, 6, 4]);
        Ok(())
    }
}
