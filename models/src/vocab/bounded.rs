//! Tokenising texts of strangers, which may be far longer than anybody has use for.

use alloc::vec::Vec;
use core::ops::Range;

use backstitch_kv::Token;

use super::{AddSpecial, Vocab};
use crate::cancel::Cancel;

/// The bytes of a text that are counted at a time.
const WINDOW: usize = 128 << 10;
/// The most tokens that cutting a text at the end of a window adds. Cutting a word gives a few
/// more at most.
const CUT: usize = 64;
/// The bytes from which on a text is counted in windows before it is tokenised as a whole.
const LONG: usize = 8 * WINDOW;

/// The reason why a text was not tokenised.
///
/// # Example
/// ```
/// use backstitch_models::vocab::TokenizeError;
///
/// let error = TokenizeError::TooMany { at_least: 5000, most: 4096 };
/// assert_eq!(error.to_string(), "the text has more than 5000 tokens; 4096 at most are wanted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The text has too many tokens. The rest of it was not looked at.
    #[error("the text has more than {at_least} tokens; {most} at most are wanted")]
    TooMany {
        /// The number of tokens found until then.
        at_least: usize,
        /// The most tokens asked for.
        most: usize,
    },
    /// A request to cancel was made meanwhile.
    #[error("tokenising was cancelled")]
    Cancelled,
}

impl Vocab {
    /// Append the tokens of `text` to `out`, as [`tokenize_trusted`](Self::tokenize_trusted) does,
    /// unless they are far more than `most`. A long text is counted in pieces first: it is refused
    /// as soon as the pieces so far have more tokens, in time that depends on `most` and not on the
    /// text. A short text, and one that is a little too long, gives its tokens all the same, so the
    /// caller can tell their number.
    ///
    /// # Errors
    /// [`TokenizeError::TooMany`]; [`TokenizeError::Cancelled`] if `cancel` was made, which is
    /// looked at before each piece. `out` is then as it was.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::vocab::{AddSpecial, TokenizeError};
    /// use backstitch_models::{Cancel, Model};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let (mut tokens, cancel) = (Vec::new(), Cancel::new());
    /// let vocab = model.vocab();
    /// vocab.tokenize_at_most("a cat", &[], AddSpecial::No, 100, &cancel, &mut tokens)?;
    /// assert_eq!(tokens.len(), 2);
    /// let long = "a".repeat(4 << 20);
    /// let refused = vocab.tokenize_at_most(&long, &[], AddSpecial::No, 100, &cancel, &mut tokens);
    /// assert!(matches!(refused, Err(TokenizeError::TooMany { most: 100, .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tokenize_at_most(
        &self,
        text: &str,
        trusted: &[Range<usize>],
        add: AddSpecial,
        most: usize,
        cancel: &Cancel,
        out: &mut Vec<Token>,
    ) -> Result<(), TokenizeError> {
        // A token stands for a byte at least, but for what a vocabulary puts in for characters.
        if text.len() > LONG && text.len() / 2 > most {
            self.count_windows(text, trusted, most, cancel)?;
        }
        if cancel.is_cancelled() {
            return Err(TokenizeError::Cancelled);
        }
        self.tokenize_trusted(text, trusted, add, out);
        Ok(())
    }

    /// Count the tokens of `text` window by window.
    fn count_windows(
        &self,
        text: &str,
        trusted: &[Range<usize>],
        most: usize,
        cancel: &Cancel,
    ) -> Result<(), TokenizeError> {
        let (mut start, mut at_least, mut tokens) = (0, 0_usize, Vec::new());
        let mut trusted = trusted;
        while start < text.len() {
            if cancel.is_cancelled() {
                return Err(TokenizeError::Cancelled);
            }
            let end = text.floor_char_boundary(start + WINDOW);
            let behind = trusted.partition_point(|range| range.end <= start);
            trusted = trusted.get(behind..).unwrap_or_default();
            let here = trusted.iter().take_while(|range| range.start < end);
            let here: Vec<_> = here.map(|range| clipped(range, start, end)).collect();
            tokens.clear();
            self.tokenize_trusted(
                text.get(start..end).unwrap_or_default(),
                &here,
                AddSpecial::No,
                &mut tokens,
            );
            at_least += tokens.len().saturating_sub(CUT);
            if at_least > most {
                return Err(TokenizeError::TooMany { at_least, most });
            }
            start = end;
        }
        Ok(())
    }
}

/// Return the part of `range` between `start` and `end`, counted from `start`.
fn clipped(range: &Range<usize>, start: usize, end: usize) -> Range<usize> {
    range.start.max(start) - start..range.end.min(end) - start
}

#[cfg(test)]
mod tests {
    use super::super::ParseSpecial;
    use super::*;
    use crate::Model;
    use alloc::string::String;

    fn model() -> Model {
        Model::from_bytes(backstitch_demo::GGUF).unwrap()
    }

    fn at_most(text: &str, trusted: &[Range<usize>], most: usize) -> Result<Vec<Token>, TokenizeError> {
        let mut tokens = Vec::new();
        let vocab = model();
        let cancel = Cancel::new();
        vocab.vocab().tokenize_at_most(text, trusted, AddSpecial::No, most, &cancel, &mut tokens)?;
        Ok(tokens)
    }

    #[test]
    fn long_texts_are_refused_early_and_never_wrongly() {
        let model = model();
        for piece in ["a", " ", "once upon a time, ", "é", "\n\n", "<|im_start|>", "0", "🙂 "] {
            let text = piece.repeat(3 * LONG / piece.len());
            let mut whole = Vec::new();
            model.vocab().tokenize(&text, AddSpecial::No, ParseSpecial::No, &mut whole);
            assert_eq!(at_most(&text, &[], whole.len()), Ok(whole.clone()), "{piece:?}");
            let Err(TokenizeError::TooMany { at_least, most }) = at_most(&text, &[], whole.len() / 8) else {
                panic!("{piece:?} was tokenised");
            };
            assert!(most < at_least && at_least <= whole.len() / 4, "{piece:?} {at_least}");
        }
    }

    #[test]
    fn trusted_ranges_count_where_they_are() {
        let model = model();
        let text = "<|im_start|>".repeat(3 * LONG / 12);
        let half = text.len() / 2 / 12 * 12;
        let trusted = [0..12, 24..half];
        let mut whole = Vec::new();
        model.vocab().tokenize_trusted(&text, &trusted, AddSpecial::No, &mut whole);
        assert_eq!(at_most(&text, &trusted, whole.len()), Ok(whole.clone()));
        assert!(at_most(&text, &trusted, whole.len() / 4).is_err());
    }

    #[test]
    fn short_texts_give_all_their_tokens() {
        let text: String = "a b c d".repeat(10);
        assert!(at_most(&text, &[], 3).is_ok_and(|tokens| tokens.len() > 3));
    }

    #[test]
    fn a_request_to_cancel_ends_it() {
        let (model, cancel, mut tokens) = (model(), Cancel::new(), Vec::new());
        cancel.cancel();
        let result = model.vocab().tokenize_at_most("a", &[], AddSpecial::No, 100, &cancel, &mut tokens);
        assert_eq!((result, tokens.len()), (Err(TokenizeError::Cancelled), 0));
    }
}
