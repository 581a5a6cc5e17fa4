//! The tokens a sequence holds, so that they can be evaluated again.

use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::{Pos, Token};
use core::ops::Range;

/// Tokens of one sequence from position `start` on; none once the sequence was changed in a way that they would not
/// tell.
#[derive(Debug, Default)]
pub(super) struct History {
    tokens: Vec<Token>,
    start: Pos,
    /// Positions no longer follow from the order of the tokens, or some tokens are not known.
    edited: bool,
    /// Another sequence may hold some of the same cells.
    shared: bool,
    /// Somebody asked for the sequence, or a batch for it was evaluated.
    claimed: bool,
}

impl History {
    /// An empty history with room for `n_ctx` tokens, so that adding one never allocates.
    pub(super) fn new(n_ctx: u32) -> Result<Self, Error> {
        let mut tokens = Vec::new();
        let refused = Error::OutOfMemory { what: "a sequence's tokens", n_bytes: 4 * u64::from(n_ctx) };
        tokens.try_reserve_exact(n_ctx as usize).map_err(|_| refused)?;
        Ok(History { tokens, ..History::default() })
    }

    /// The same tokens in room of their own, for a sequence that shares cells with this one.
    pub(super) fn duplicate(&self, n_ctx: u32) -> Result<Self, Error> {
        let mut copy = History::new(n_ctx)?;
        copy.tokens.extend_from_slice(&self.tokens);
        Ok(History { start: self.start, edited: self.edited, shared: true, claimed: true, ..copy })
    }

    pub(super) fn claim(&mut self) {
        self.claimed = true;
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.claimed
    }

    pub(super) fn share(&mut self) {
        self.shared = true;
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The position of the first token, as far as it is known.
    pub(super) fn start(&self) -> Pos {
        self.start
    }

    /// Adds the token at `pos`, which follows the last one.
    pub(super) fn push(&mut self, token: Token, pos: Pos) {
        if self.edited {
            return;
        }
        if self.tokens.is_empty() {
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

    /// Notes that the tokens of a range of positions were removed and that `left` remain.
    pub(super) fn remove(&mut self, range: Range<Pos>, left: Left) {
        let end = self.start.0 + self.tokens.len() as i32;
        match left {
            Left::Nothing => self.clear(),
            Left::Something if self.edited || range.start.0 >= end || range.end <= self.start => {}
            Left::Something if range.start > self.start && range.end.0 >= end => {
                self.tokens.truncate((range.start.0 - self.start.0) as usize);
            }
            // In the middle or at the front: what is left no longer tells what the model has seen.
            Left::Something => self.edit(),
        }
    }

    /// Keeps of a copy only what a range of positions of the original held.
    pub(super) fn keep(&mut self, range: Range<Pos>, left: Left) {
        let end = self.start.0 + self.tokens.len() as i32;
        match left {
            Left::Nothing => self.clear(),
            Left::Something if range.start > self.start => self.edit(),
            Left::Something if !self.edited && range.end.0 < end => {
                self.tokens.truncate((range.end.0 - self.start.0).max(0) as usize);
            }
            Left::Something => {}
        }
    }

    /// Notes that the sequence was changed in a way that its tokens do not tell: they are forgotten.
    pub(super) fn edit(&mut self) {
        self.tokens.clear();
        self.edited = true;
    }

    /// The sequence holds nothing.
    pub(super) fn clear(&mut self) {
        let claimed = self.claimed;
        self.tokens.clear();
        *self = History { tokens: core::mem::take(&mut self.tokens), claimed, ..History::default() };
    }
}

/// Whether a sequence holds anything after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(n: u32) -> History {
        let mut history = History::new(16).unwrap();
        (0..n).for_each(|i| history.push(Token(i), Pos(i as i32)));
        history
    }

    #[test]
    fn removing_the_tail_keeps_the_prefix_known() {
        let mut h = history(10);
        h.remove(Pos(6)..Pos::MAX, Left::Something);
        assert_eq!(h.tokens().len(), 6);
        assert_eq!(h.prefix(Pos(4)).map(<[Token]>::len), Some(4));
        assert_eq!(h.prefix(Pos(7)), None);
        h.remove(Pos(8)..Pos(9), Left::Something);
        assert_eq!(h.tokens().len(), 6);
    }

    #[test]
    fn a_hole_makes_the_prefix_unknown_until_all_is_removed() {
        let mut h = history(10);
        h.remove(Pos(2)..Pos(4), Left::Something);
        assert_eq!((h.prefix(Pos(1)), h.tokens().len()), (None, 0));
        h.push(Token(3), Pos(10));
        assert_eq!(h.tokens().len(), 0);
        h.remove(Pos::ZERO..Pos::MAX, Left::Nothing);
        h.push(Token(1), Pos(0));
        assert_eq!(h.prefix(Pos(1)), Some([Token(1)].as_slice()));
    }

    #[test]
    fn a_copy_of_a_prefix_is_known() {
        let copy = |range: Range<Pos>, left| {
            let mut copy = history(10).duplicate(16).unwrap();
            copy.keep(range, left);
            copy
        };
        let prefix = copy(Pos::ZERO..Pos(4), Left::Something);
        assert_eq!(prefix.prefix(Pos(4)).map(<[Token]>::len), Some(4));
        assert!(prefix.is_shared());
        assert_eq!(copy(Pos(2)..Pos(4), Left::Something).prefix(Pos(1)), None);
        assert_eq!(copy(Pos(20)..Pos(30), Left::Nothing).tokens().len(), 0);
        assert_eq!(copy(Pos::ZERO..Pos::MAX, Left::Something).tokens().len(), 10);
    }

    #[test]
    fn adding_a_token_never_allocates() {
        let mut h = history(3).duplicate(16).unwrap();
        let room = h.tokens.as_ptr();
        (3..16).for_each(|i| h.push(Token(i), Pos(i as i32)));
        assert_eq!(h.tokens.as_ptr(), room);
    }
}
