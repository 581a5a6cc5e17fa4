//! The last tokens of a sequence, with their counts.

use alloc::vec;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// The last tokens accepted, and the number of times that each occurs among them.
///
/// The window is as long as the penalties need ([`Builder::last_n`](super::Builder::last_n)). A
/// [`Chain`](super::Chain) owns one history for all its samplers.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::History;
///
/// let mut history = History::new(10, 2);
/// [1, 2, 2].into_iter().for_each(|id| history.accept(Token(id)));
/// assert_eq!((history.count(Token(2)), history.count(Token(1))), (2, 0)); // 1 left the window
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The window as a ring buffer; `next` is the oldest entry once the ring is full.
    ring: Vec<Token>,
    next: usize,
    window: usize,
    /// Occurrences in the ring by token: `[n_vocab]`, or empty if there is no window.
    counts: Vec<u32>,
}

impl History {
    /// Make an empty history of the last `window` tokens with ids below `n_vocab`.
    pub fn new(n_vocab: usize, window: usize) -> Self {
        let counts = if window == 0 { 0 } else { n_vocab };
        Self { ring: Vec::with_capacity(window), next: 0, window, counts: vec![0; counts] }
    }

    /// Append a token; the oldest one leaves a full window. O(1), allocates nothing. Tokens outside
    /// of the vocabulary are ignored.
    pub fn accept(&mut self, token: Token) {
        let Some(count) = self.counts.get_mut(token.0 as usize) else { return };
        *count += 1;
        if self.ring.len() < self.window {
            self.ring.push(token);
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            let gone = core::mem::replace(oldest, token);
            self.next = (self.next + 1) % self.window;
            if let Some(count) = self.counts.get_mut(gone.0 as usize) {
                *count -= 1;
            }
        }
    }

    /// Return the number of times that `token` occurs in the window.
    pub fn count(&self, token: Token) -> u32 {
        self.counts.get(token.0 as usize).copied().unwrap_or(0)
    }

    /// Return the tokens in the window, oldest first.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        let (newer, older) = self.ring.split_at(self.next);
        older.iter().chain(newer).copied()
    }

    /// Remove all tokens.
    pub fn reset(&mut self) {
        self.ring.clear();
        self.next = 0;
        self.counts.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_a_window_nothing_is_counted() {
        let mut history = History::new(10, 0);
        history.accept(Token(3));
        assert_eq!(history.count(Token(3)), 0);
        assert_eq!(history.tokens().count(), 0);
    }

    #[test]
    fn unknown_tokens_are_ignored() {
        let mut history = History::new(10, 2);
        history.accept(Token(10));
        history.accept(Token(u32::MAX));
        assert_eq!(history.tokens().count(), 0);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_last_window(
            tokens in prop::collection::vec(0u32..8, 0..60),
            window in 1usize..12,
        ) {
            let mut history = History::new(8, window);
            tokens.iter().for_each(|&t| history.accept(Token(t)));
            let last = &tokens[tokens.len().saturating_sub(window)..];
            prop_assert_eq!(history.tokens().map(|t| t.0).collect::<Vec<_>>(), last);
            for token in 0..8 {
                let expected = last.iter().filter(|&&t| t == token).count();
                prop_assert_eq!(history.count(Token(token)) as usize, expected);
            }
            history.reset();
            prop_assert_eq!(history, History::new(8, window));
        }
    }
}
