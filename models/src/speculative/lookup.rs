//! Guesses from the text itself: what came after these tokens the last time.

use super::Drafter;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Prompt look-up: searches the text backwards for the longest run of its last tokens and guesses that it goes on as it did
/// there. Good where texts repeat themselves: code, quotations, summaries.
///
/// Keeps nothing, so the text may change in any way between steps. A search looks at no more than `window` places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Fewer equal tokens than this are no reason for a guess.
    pub n_min: usize,
    /// The first place with so many equal tokens is taken.
    pub n_max: usize,
    /// How many tokens back the search goes.
    pub window: usize,
}

impl Default for Lookup {
    /// Two to four tokens in the last 8192.
    fn default() -> Self {
        Lookup { n_min: 2, n_max: 4, window: 8192 }
    }
}

impl Lookup {
    /// Where the text went on after the longest and latest run that equals its end; an index into `held`.
    fn find(&self, held: &[Token], last: Token) -> Option<usize> {
        let (mut found, mut longest) = (None, self.n_min.max(1) - 1);
        for i in (held.len().saturating_sub(self.window)..held.len()).rev() {
            if held[i] != last {
                continue;
            }
            let before = held[..i].iter().rev().zip(held.iter().rev()).take(self.n_max.max(1) - 1);
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
    fn draft(&mut self, held: &[Token], last: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        let Some(start) = self.find(held, last) else { return Ok(()) };
        for i in start..start.saturating_add(n) {
            // Past the end of the text its continuation is the guess itself: a loop goes on.
            let token = match i.checked_sub(held.len()) {
                None => held.get(i),
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
