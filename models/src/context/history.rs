//! The tokens a sequence holds, so that they can be evaluated again.

use alloc::vec::Vec;
use backstitch_kv::{Pos, Token};
use core::ops::Range;

/// Tokens of one sequence from position `start` on.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    tokens: Vec<Token>,
    start: Pos,
    /// Positions no longer follow from the order of the tokens, or some are missing.
    edited: bool,
}

impl History {
    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Adds the token at `pos`, which follows the last one. Makes room for `n_ctx` tokens at once.
    pub(super) fn push(&mut self, token: Token, pos: Pos, n_ctx: u32) {
        if self.tokens.is_empty() {
            self.tokens.reserve_exact(n_ctx as usize);
            self.start = pos;
        }
        self.tokens.push(token);
    }

    /// The tokens before `pos`, if evaluating them makes the sequence again.
    pub(super) fn prefix(&self, pos: Pos) -> Option<&[Token]> {
        if self.edited || self.start != Pos::ZERO {
            return None;
        }
        self.tokens.get(..usize::try_from(pos.0).ok()?)
    }

    /// Forgets the tokens of a range of positions.
    pub(super) fn remove(&mut self, range: Range<Pos>) {
        if range.is_empty() {
            return;
        }
        let end = Pos(self.start.0 + self.tokens.len() as i32);
        if self.edited || range.end < end && range.start < end && range.end > self.start {
            // In the middle or at the front: what is left no longer tells what the model has seen.
            self.edit();
        } else if range.start < end {
            self.tokens.truncate((range.start.0 - self.start.0).max(0) as usize);
        }
        if range.start <= self.start && range.end >= end {
            *self = History { tokens: core::mem::take(&mut self.tokens), ..History::default() };
            self.tokens.clear();
        }
    }

    /// What another sequence holds that was given this range of positions.
    pub(super) fn copy(&self, range: Range<Pos>) -> History {
        let mut copy = self.clone();
        let end = Pos(self.start.0 + self.tokens.len() as i32);
        if range.start > self.start {
            copy.edit();
        } else if range.end < end {
            copy.tokens.truncate((range.end.0 - self.start.0).max(0) as usize);
        }
        copy
    }

    /// Notes that the sequence was changed in a way that its tokens do not tell.
    pub(super) fn edit(&mut self) {
        self.edited = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(n: u32) -> History {
        let mut history = History::default();
        (0..n).for_each(|i| history.push(Token(i), Pos(i as i32), 16));
        history
    }

    #[test]
    fn removing_the_tail_keeps_the_prefix_known() {
        let mut h = history(10);
        h.remove(Pos(6)..Pos::MAX);
        assert_eq!(h.tokens().len(), 6);
        assert_eq!(h.prefix(Pos(4)).map(<[Token]>::len), Some(4));
        assert_eq!(h.prefix(Pos(7)), None);
    }

    #[test]
    fn a_hole_makes_the_prefix_unknown_until_all_is_removed() {
        let mut h = history(10);
        h.remove(Pos(2)..Pos(4));
        assert_eq!(h.prefix(Pos(1)), None);
        h.remove(Pos::ZERO..Pos::MAX);
        h.push(Token(1), Pos(0), 16);
        assert_eq!(h.prefix(Pos(1)), Some([Token(1)].as_slice()));
    }

    #[test]
    fn a_copy_of_a_prefix_is_known() {
        assert_eq!(history(10).copy(Pos::ZERO..Pos(4)).prefix(Pos(4)).map(<[Token]>::len), Some(4));
        assert_eq!(history(10).copy(Pos(2)..Pos(4)).prefix(Pos(1)), None);
        assert_eq!(history(3).copy(Pos::ZERO..Pos::MAX).tokens().len(), 3);
    }
}
