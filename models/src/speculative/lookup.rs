//! Prompt lookup: drafts from the text itself.

use super::Drafter;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Prompt lookup: search the text backwards for the longest run of its last tokens, and draft the
/// tokens that followed there (Saxena, "Prompt lookup decoding", 2023). This works where texts
/// repeat themselves: code, quotations, summaries.
///
/// The drafter has no state, so the text may change in any way between steps. A search looks at no
/// more than `window` positions.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::speculative::{Drafter, Lookup};
///
/// let text = [1, 2, 3, 4, 1].map(Token);
/// let mut draft = Vec::new();
/// Lookup::default().draft(&text, Token(2), 2, &mut draft)?;
/// assert_eq!(draft, [Token(3), Token(4)]); // 1 2 was followed by 3 4
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The fewest equal tokens for a draft.
    pub n_min: usize,
    /// The number of equal tokens that ends the search at once.
    pub n_max: usize,
    /// The number of tokens that the search goes back.
    pub window: usize,
}

impl Default for Lookup {
    /// Two to four equal tokens in the last 8192.
    fn default() -> Self {
        Lookup { n_min: 2, n_max: 4, window: 8192 }
    }
}

impl Lookup {
    /// Return the index into `tokens` of the continuation of the longest and latest run that equals
    /// the end of the text.
    fn find(&self, tokens: &[Token], last: Token) -> Option<usize> {
        let (mut found, mut longest) = (None, self.n_min.max(1) - 1);
        for i in (tokens.len().saturating_sub(self.window)..tokens.len()).rev() {
            if tokens[i] != last {
                continue;
            }
            let before = tokens[..i].iter().rev().zip(tokens.iter().rev()).take(self.n_max.max(1) - 1);
            let len = 1 + before.take_while(|(a, b)| a == b).count();
            if len > longest {
                (found, longest) = (Some(i + 1), len);
                if len >= self.n_max {
                    break;
                }
            }
        }
        found
    }
}

impl Drafter for Lookup {
    fn draft(
        &mut self,
        tokens: &[Token],
        last: Token,
        n: usize,
        draft: &mut Vec<Token>,
    ) -> Result<(), Error> {
        let Some(start) = self.find(tokens, last) else { return Ok(()) };
        for i in start..start.saturating_add(n) {
            // Behind the end of the text the draft itself is the continuation, so a loop continues.
            let token = match i.checked_sub(tokens.len()) {
                None => tokens.get(i),
                Some(0) => Some(&last),
                Some(beyond) => draft.get(beyond - 1),
            };
            let Some(&token) = token else { break };
            draft.push(token);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(lookup: Lookup, text: &[u32], n: usize) -> Vec<u32> {
        let tokens: Vec<Token> = text.iter().map(|&t| Token(t)).collect();
        let (last, held) = tokens.split_last().unwrap();
        let mut draft = Vec::new();
        lookup.clone().draft(held, *last, n, &mut draft).unwrap();
        draft.iter().map(|t| t.0).collect()
    }

    #[test]
    fn the_text_goes_on_as_it_did() {
        assert_eq!(guess(Lookup::default(), &[1, 2, 3, 4, 5, 9, 1, 2], 3), [3, 4, 5]);
    }

    #[test]
    fn the_longest_run_wins_and_of_equal_ones_the_latest() {
        let text = [7, 1, 2, 30, 1, 2, 40, 8, 1, 2, 50, 9, 7, 1, 2];
        assert_eq!(guess(Lookup::default(), &text, 1), [30]);
        assert_eq!(guess(Lookup { n_max: 2, ..Lookup::default() }, &text, 1), [50]);
    }

    #[test]
    fn a_single_equal_token_is_no_reason() {
        assert!(guess(Lookup::default(), &[1, 2, 3, 2], 3).is_empty());
        assert_eq!(guess(Lookup { n_min: 1, ..Lookup::default() }, &[1, 2, 3, 2], 3), [3, 2, 3]);
    }

    #[test]
    fn a_loop_goes_on_beyond_the_text() {
        assert_eq!(guess(Lookup::default(), &[4, 4, 4], 5), [4; 5]);
        assert_eq!(guess(Lookup::default(), &[1, 2, 1, 2], 5), [1, 2, 1, 2, 1]);
    }

    #[test]
    fn nothing_is_searched_beyond_the_window() {
        let mut text = alloc::vec![1, 2, 3];
        text.extend(100..200);
        text.extend([1, 2]);
        assert_eq!(guess(Lookup::default(), &text, 1), [3]);
        assert!(guess(Lookup { window: 50, ..Lookup::default() }, &text, 1).is_empty());
    }

    #[test]
    fn a_text_of_one_token_and_odd_settings_are_fine() {
        assert!(guess(Lookup::default(), &[1], 4).is_empty());
        assert_eq!(guess(Lookup { n_min: 0, n_max: 0, window: usize::MAX }, &[1, 2, 1], 2), [2, 1]);
    }
}
