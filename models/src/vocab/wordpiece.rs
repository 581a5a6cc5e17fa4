//! WordPiece, as in BERT (Devlin et al., 2018): text is cut into words, without case and accents
//! unless the model keeps them. The longest token that a word starts with is cut off, again and again. A word with a rest that no
//! token matches becomes the unknown token.
//!
//! White space, punctuation and ideographs divide words; control characters and combining marks are
//! removed. In model files the start of a word is written `▁`.

use alloc::string::String;
use alloc::vec::Vec;

use backstitch_kv::Token;
use unicode_general_category::{GeneralCategory as Category, get_general_category};
use unicode_normalization::char::decompose_canonical;

use super::automaton::{Automaton, Direction};
use super::error::VocabError;
use super::source::VocabSource;
use super::spm::SPACE;
use super::strings::Strings;

/// A WordPiece tokeniser.
#[derive(Clone, Debug)]
pub(super) struct WordPiece {
    /// The automaton of the tokens back to front, which finds the longest token that starts at each
    /// position.
    automaton: Automaton,
    unk: Option<Token>,
    lowercase: bool,
    strip_accents: bool,
}

impl WordPiece {
    /// Build the tokeniser for the tokens in `texts`.
    ///
    /// # Errors
    /// Those of [`Automaton::new`].
    pub(super) fn new(
        source: &VocabSource<'_>,
        texts: &Strings,
        unk: Option<Token>,
    ) -> Result<Self, VocabError> {
        let lowercase = source.lowercase.unwrap_or(true);
        Ok(Self {
            automaton: Automaton::new(0..texts.len() as u32, texts, Direction::Backwards)?,
            unk,
            lowercase,
            strip_accents: source.strip_accents.unwrap_or(lowercase),
        })
    }

    /// Append the tokens of `text`.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let mut word = String::from(SPACE);
        let mut longest = Vec::new();
        let mut take = |c: char| {
            let role = Role::of(c, self.strip_accents);
            if role != Role::Letter && role != Role::Dropped {
                self.end_word(&mut word, texts, &mut longest, out);
            }
            if (role == Role::Letter || role == Role::Alone) && self.lowercase {
                word.extend(c.to_lowercase());
            } else if role == Role::Letter || role == Role::Alone {
                word.push(c);
            }
            if role == Role::Alone {
                self.end_word(&mut word, texts, &mut longest, out);
            }
        };
        for c in text.chars() {
            if self.strip_accents { decompose_canonical(c, &mut take) } else { take(c) }
        }
        self.end_word(&mut word, texts, &mut longest, out);
    }

    /// Append the tokens of the word gathered so far, if any, and begin another.
    fn end_word(
        &self,
        word: &mut String,
        texts: &Strings,
        longest: &mut Vec<Option<u32>>,
        out: &mut Vec<Token>,
    ) {
        if word.len() == SPACE.len() {
            return;
        }
        longest.clear();
        longest.resize(word.len(), None);
        let mut node = 0;
        for (byte, longest) in word.bytes().zip(longest.iter_mut()).rev() {
            node = self.automaton.step(node, byte);
            *longest = self.automaton.ending(node).next();
        }
        let (before, mut at) = (out.len(), 0);
        while let Some(&longest) = longest.get(at) {
            let Some(id) = longest else {
                out.truncate(before);
                out.extend(self.unk);
                break;
            };
            out.push(Token(id));
            at += texts.at(id).len();
        }
        word.truncate(SPACE.len());
    }
}

/// The effect of a character on words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Continues a word.
    Letter,
    /// Ends a word.
    Space,
    /// Ends a word, and is a word of its own.
    Alone,
    /// Is removed.
    Dropped,
}

impl Role {
    fn of(c: char, strip_accents: bool) -> Self {
        if c.is_whitespace() {
            return Self::Space;
        }
        let category = get_general_category(c);
        match category {
            _ if c == '\u{fffd}' => Self::Dropped,
            Category::Control | Category::Format | Category::PrivateUse | Category::Surrogate => {
                Self::Dropped
            }
            Category::NonspacingMark if strip_accents => Self::Dropped,
            Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation => Self::Alone,
            Category::MathSymbol
            | Category::CurrencySymbol
            | Category::ModifierSymbol
            | Category::OtherSymbol
                if c.is_ascii() =>
            {
                Self::Alone
            }
            _ if is_ideograph(c) => Self::Alone,
            _ => Self::Letter,
        }
    }
}

/// Return true for the ideographs that BERT's own tokeniser lists. One block starts 0x100 late
/// there, and so here.
fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(vocab: &[&str], text: &str) -> Vec<u32> {
        tokens_with(&VocabSource::default(), vocab, text)
    }

    fn tokens_with(source: &VocabSource<'_>, vocab: &[&str], text: &str) -> Vec<u32> {
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        vocab.iter().for_each(|text| drop(texts.push(text.as_bytes())));
        let mut out = Vec::new();
        WordPiece::new(source, &texts, Some(Token(0))).unwrap().tokenize(text, &texts, &mut out);
        out.iter().map(|token| token.0).collect()
    }

    #[test]
    fn the_longest_start_of_a_word_is_taken_off_again_and_again() {
        let vocab = ["?", "▁a", "▁ab", "b", "bc", "c", "d"];
        assert_eq!(tokens(&vocab, "abbcd"), [2, 4, 6]);
        assert_eq!(tokens(&vocab, "a b  ab"), [1, 0, 2]);
        assert_eq!(tokens(&vocab, "abx"), [0]);
        assert_eq!(tokens(&vocab, "").len(), 0);
    }

    #[test]
    fn words_have_neither_case_nor_accents() {
        let vocab = ["?", "▁a", "▁e", "▁!", "▁中", "b"];
        assert_eq!(tokens(&vocab, "\u{c0}B\u{200d}b"), [1, 5, 5]);
        assert_eq!(tokens(&vocab, "e\u{301}!\u{e9}中中"), [2, 3, 2, 4, 4]);
    }

    #[test]
    fn case_and_accents_are_kept_where_the_model_says_so() {
        let vocab = ["?", "▁a", "▁A", "▁à", "▁À"];
        let with =
            |lowercase, strip_accents| VocabSource { lowercase, strip_accents, ..VocabSource::default() };
        assert_eq!(tokens_with(&with(None, None), &vocab, "A À"), [1, 1]);
        assert_eq!(tokens_with(&with(Some(false), None), &vocab, "A À"), [2, 4]);
        assert_eq!(tokens_with(&with(Some(true), Some(false)), &vocab, "A À"), [1, 3]);
        assert_eq!(tokens_with(&with(Some(false), Some(true)), &vocab, "A À"), [2, 2]);
    }

    #[test]
    fn a_word_that_almost_is_a_long_token_takes_linear_time() {
        let long = "a".repeat(100_000);
        let (almost, start) = (alloc::format!("▁{long}b"), "▁a");
        let found = tokens(&["?", &almost, start, "a"], &long);
        assert_eq!((found.len(), found[0], found[1]), (100_000, 2, 3));
    }
}
