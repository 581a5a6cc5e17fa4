//! Histories: the tokens of each sequence, kept for re-evaluation.

use crate::error::Error;
use crate::runner::outputs::Logits;
use crate::saved_reader::SavedReader;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::{Pos, Token};
use core::ops::Range;

/// Name of an encoded history in errors.
const WHAT: &str = "the list of a sequence's tokens";
/// Bytes before the tokens of an encoded history.
const HEAD: usize = 8;
/// Bits of the first word of an encoded history.
const EDITED: u32 = 1;
const FOREIGN: u32 = 2;

/// The tokens of one sequence from position `start` on.
///
/// It always matches the memory's sequence: either all tokens are known, or `edited` is set.
/// Removing, moving or dividing tokens in the middle changes the memory in a way that no list of
/// tokens describes; the history then forgets its tokens and starts again with the next one.
/// Re-evaluation is impossible before that point.
#[derive(Debug, Default)]
pub(super) struct History {
    tokens: Vec<Token>,
    start: Pos,
    /// True if tokens before `start` may exist that are not known.
    edited: bool,
    /// True if cells or states may differ from those that evaluating the tokens here would give,
    /// because another engine computed them or they were rounded.
    foreign: bool,
    /// Logits at pinned positions, ascending.
    pins: Vec<(Pos, Logits)>,
    /// Number of tokens to reserve space for.
    n_expected: usize,
}

impl History {
    /// Return an empty history with space for `n_ctx` tokens, so that no token up to there
    /// allocates.
    pub(super) fn new(n_ctx: u32) -> Result<Self, Error> {
        let mut tokens = Vec::new();
        let refused = Error::OutOfMemory { what: "a sequence's tokens", n_bytes: 4 * u64::from(n_ctx) };
        tokens.try_reserve_exact(n_ctx as usize).map_err(|_| refused)?;
        Ok(History { tokens, ..History::default() })
    }

    /// Return the history of `tokens`, the first at position 0, with space for at least `n_ctx`.
    pub(super) fn of(tokens: &[Token], n_ctx: u32) -> Result<Self, Error> {
        let n = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let mut history = History::new(n.max(n_ctx))?;
        history.tokens.extend_from_slice(tokens);
        Ok(history)
    }

    /// Return a copy with space for at least `n_ctx` tokens.
    pub(super) fn duplicate(&self, n_ctx: u32) -> Result<Self, Error> {
        let mut copy = History::of(&self.tokens, n_ctx)?;
        copy.make_room_for_pins(self.pins.len())?;
        copy.pins.extend_from_slice(&self.pins);
        let &History { start, edited, foreign, .. } = self;
        Ok(History { start, edited, foreign, ..copy })
    }

    /// Return the history as bytes, little-endian: flags (u32; bit 0: edited, bit 1: foreign),
    /// `start` (i32), and the tokens (u32 each).
    pub(super) fn encode(&self) -> Vec<u8> {
        let edited = if self.edited { EDITED } else { 0 };
        let flags = edited | if self.foreign { FOREIGN } else { 0 };
        let head = [flags, self.start.0.cast_unsigned()];
        let parts: [&[u8]; 2] = [bytemuck::bytes_of(&head), bytemuck::must_cast_slice(&self.tokens)];
        parts.concat()
    }

    /// Return the history of a saved sequence with space for at least `n_ctx` tokens.
    ///
    /// # Errors
    /// - [`Error::SavedValue`] if a token is not below `n_vocab`.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub(super) fn restore(saved: &SavedTokens, n_vocab: usize, n_ctx: u32) -> Result<Self, Error> {
        if let Some(i) = saved.tokens.iter().position(|token| token.0 as usize >= n_vocab) {
            let (offset, found) = ((HEAD + 4 * i) as u64, saved.tokens[i].0.into());
            return Err(Error::SavedValue { what: WHAT, offset, found, wanted: "a token of the vocabulary" });
        }
        let history = History::of(&saved.tokens, n_ctx)?;
        let &SavedTokens { edited, foreign, start, .. } = saved;
        Ok(History { start, edited, foreign, ..history })
    }

    /// Expect one more token.
    pub(super) fn expect_one(&mut self) {
        self.n_expected += 1;
    }

    /// Reserve space for the expected tokens. Beyond `n_ctx` the list grows geometrically.
    pub(super) fn make_room(&mut self) -> Result<(), Error> {
        let n = core::mem::take(&mut self.n_expected);
        let n_bytes = 4 * (self.tokens.len() as u64 + n as u64);
        self.tokens.try_reserve(n).map_err(|_| Error::OutOfMemory { what: "a sequence's tokens", n_bytes })
    }

    /// Record that the content was not computed here from the tokens, until the sequence is empty.
    pub(super) fn make_foreign(&mut self) {
        self.foreign = true;
    }

    /// Return true if the content may differ from what evaluating the tokens here would give.
    #[cfg(feature = "std")]
    pub(super) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Return all tokens; none if some are not known.
    pub(super) fn tokens(&self) -> &[Token] {
        if self.edited { &[] } else { &self.tokens }
    }

    /// Return the first position of the sequence, as far as it is known.
    pub(super) fn first(&self) -> Pos {
        if self.edited { Pos::ZERO } else { self.start }
    }

    /// Return true if tokens before the next one may exist, and none is known: the known ones begin
    /// with the next.
    pub(super) fn begins_next(&self) -> bool {
        self.edited && self.tokens.is_empty()
    }

    /// Add the token at `pos`, which follows the last one. Space must have been reserved.
    pub(super) fn push(&mut self, token: Token, pos: Pos) {
        if self.tokens.is_empty() {
            self.start = pos;
        }
        self.tokens.push(token);
    }

    /// Return the tokens from `from`, or from the start of the sequence, to `to`, with the position
    /// of the first; none if some are not known.
    pub(super) fn between(&self, from: Pos, to: Pos) -> Option<(Pos, &[Token])> {
        let from = if self.edited { from } else { from.max(self.start) };
        let index = |pos: Pos| usize::try_from(pos.0.checked_sub(self.start.0)?).ok();
        Some((from, self.tokens.get(index(from)?..index(to)?)?))
    }

    /// Record the removal of a range of positions, after which `left` remains.
    pub(super) fn remove(&mut self, range: Range<Pos>, left: Left) {
        let end = self.start.0 + self.tokens.len() as i32;
        match left {
            Left::Nothing => self.clear(),
            Left::Something if range.start.0 >= end || range.is_empty() || range.end <= self.first() => {}
            Left::Something if range.start >= self.start && range.end.0 >= end => {
                self.tokens.truncate((range.start.0 - self.start.0) as usize);
                self.pins.retain(|(pos, _)| *pos <= range.start);
            }
            // Tokens that are left do not describe what the model has seen.
            Left::Something => self.edit(),
        }
    }

    /// Restrict a copy to a range of positions of the original.
    pub(super) fn keep(&mut self, range: Range<Pos>, left: Left) {
        let end = self.start.0 + self.tokens.len() as i32;
        match left {
            Left::Nothing => self.clear(),
            Left::Something if range.start > self.first() => self.edit(),
            Left::Something if range.end.0 < end => {
                self.tokens.truncate((range.end.0 - self.start.0).max(0) as usize);
                self.pins.retain(|(pos, _)| *pos <= range.end);
            }
            Left::Something => {}
        }
    }

    /// Record a change that tokens do not describe: forget them, and start again with the next one.
    pub(super) fn edit(&mut self) {
        self.tokens.clear();
        self.pins.clear();
        self.edited = true;
    }

    /// Reserve space for the logits of `n` more pins.
    pub(super) fn make_room_for_pins(&mut self, n: usize) -> Result<(), Error> {
        let n_bytes = (n * size_of::<(Pos, Logits)>()) as u64;
        self.pins.try_reserve(n).map_err(|_| Error::OutOfMemory { what: "pins", n_bytes })
    }

    /// Keep the logits of the token before the pinned position `pos`, if space is reserved.
    pub(super) fn pin(&mut self, pos: Pos, logits: Logits) {
        self.unpin(pos);
        self.pins.push((pos, logits));
    }

    /// Drop the logits kept at `pos`.
    pub(super) fn unpin(&mut self, pos: Pos) {
        self.pins.retain(|(pinned, _)| *pinned != pos);
    }

    /// Return the logits kept at `pos`.
    pub(super) fn pinned(&self, pos: Pos) -> Option<Logits> {
        self.pins.iter().find(|(pinned, _)| *pinned == pos).map(|(_, logits)| logits.clone())
    }

    /// Record that the sequence is empty.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        *self = History { tokens: core::mem::take(&mut self.tokens), ..History::default() };
    }
}

/// The tokens of a saved sequence, as [`History::encode`] wrote them.
#[derive(Clone, Debug)]
pub(super) struct SavedTokens {
    /// True if tokens before `start` are not known.
    pub edited: bool,
    /// True if the sequence was not computed here from its tokens.
    pub foreign: bool,
    /// The position of the first token.
    pub start: Pos,
    /// The tokens.
    pub tokens: Arc<Vec<Token>>,
}

impl SavedTokens {
    /// Parse the bytes that [`History::encode`] wrote.
    ///
    /// # Errors
    /// - [`Error::SavedLength`] if the bytes do not end with a whole token.
    /// - [`Error::SavedValue`] if a flag is unknown or the positions exceed an `i32`.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = SavedReader::new(WHAT, bytes);
        let [flags, start] = from.array::<u32, 2>()?;
        let tokens: Vec<Token> = from.rest()?;
        if flags & !(EDITED | FOREIGN) != 0 {
            return Err(from.wrong(0, flags, "flags in bits 0 and 1 alone"));
        }
        let n = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        if i32::try_from(start.saturating_add(n)).is_err() {
            return Err(from.wrong(4, start, "a position of a sequence of so many tokens"));
        }
        let (edited, foreign) = (flags & EDITED != 0, flags & FOREIGN != 0);
        Ok(Self { edited, foreign, start: Pos(start as i32), tokens: Arc::new(tokens) })
    }
}

/// Content of a sequence after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The history in these bytes, of a vocabulary of 16 tokens and a context of 64.
    fn decode(bytes: &[u8]) -> Result<History, Error> {
        History::restore(&SavedTokens::parse(bytes)?, 16, 64)
    }

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
        assert_eq!(h.between(Pos(0), Pos(4)).map(|known| known.1.len()), Some(4));
        assert_eq!(h.between(Pos(3), Pos(4)).map(|known| known.1), Some([Token(3)].as_slice()));
        assert_eq!(h.between(Pos(0), Pos(7)), None);
        h.remove(Pos(8)..Pos(9), Left::Something);
        assert_eq!(h.tokens().len(), 6);
    }

    #[test]
    fn a_hole_makes_the_prefix_unknown_until_all_is_removed() {
        let mut h = history(10);
        h.remove(Pos(2)..Pos(4), Left::Something);
        assert_eq!((h.between(Pos(0), Pos(1)), h.tokens().len()), (None, 0));
        h.push(Token(3), Pos(10));
        h.push(Token(4), Pos(11));
        assert_eq!((h.between(Pos(0), Pos(11)), h.tokens().len()), (None, 0));
        // What came after the change is known.
        assert_eq!(h.between(Pos(11), Pos(12)), Some((Pos(11), [Token(4)].as_slice())));
        h.remove(Pos::ZERO..Pos::MAX, Left::Nothing);
        h.push(Token(1), Pos(0));
        assert_eq!(h.between(Pos(0), Pos(1)), Some((Pos(0), [Token(1)].as_slice())));
    }

    #[test]
    fn a_copy_of_a_prefix_is_known() {
        let copy = |range: Range<Pos>, left| {
            let mut copy = history(10).duplicate(16).unwrap();
            copy.keep(range, left);
            copy
        };
        let prefix = copy(Pos::ZERO..Pos(4), Left::Something);
        assert_eq!(prefix.between(Pos(0), Pos(4)).map(|known| known.1.len()), Some(4));
        assert_eq!(copy(Pos(2)..Pos(4), Left::Something).between(Pos(0), Pos(1)), None);
        assert_eq!(copy(Pos(20)..Pos(30), Left::Nothing).tokens().len(), 0);
        assert_eq!(copy(Pos::ZERO..Pos::MAX, Left::Something).tokens().len(), 10);
    }

    #[test]
    fn a_foreign_sequence_stays_so_until_it_is_empty() {
        let mut h = history(10);
        h.make_foreign();
        h.remove(Pos(6)..Pos::MAX, Left::Something);
        h.push(Token(3), Pos(6));
        assert!(h.is_foreign() && h.duplicate(16).unwrap().is_foreign());
        h.edit();
        assert!(h.is_foreign());
        h.remove(Pos::ZERO..Pos::MAX, Left::Nothing);
        assert!(!h.is_foreign());
    }

    #[test]
    fn a_history_in_bytes_is_the_same_history() {
        let mut edited = history(10);
        edited.edit();
        edited.push(Token(3), Pos(20));
        let mut foreign = history(3);
        foreign.make_foreign();
        for h in [history(0), history(10), edited, foreign] {
            let bytes = h.encode();
            let back = decode(&bytes).unwrap();
            assert_eq!((&back.tokens, back.start), (&h.tokens, h.start));
            assert_eq!((back.edited, back.foreign), (h.edited, h.foreign));
            assert!(back.tokens.capacity() >= 64);
            for n in (0..bytes.len()).filter(|n| *n < HEAD || n % 4 != 0) {
                let error = decode(&bytes[..n]).unwrap_err();
                assert!(matches!(error, Error::SavedLength { .. }), "{n}: {error:?}");
            }
        }
    }

    #[test]
    fn nonsense_is_no_history() {
        let good = history(4).encode();
        let cases: [(usize, &[u8], u64); 4] =
            [(0, &[4], 0), (7, &[0x80], 4), (4, &[0xfe, 0xff, 0xff, 0x7f], 4), (12, &[16], 12)];
        for (at, change, wanted) in cases {
            let mut bytes = good.clone();
            bytes[at..at + change.len()].copy_from_slice(change);
            let error = decode(&bytes).unwrap_err();
            assert!(matches!(error, Error::SavedValue { offset, .. } if offset == wanted), "{at}: {error:?}");
        }
    }

    #[test]
    fn adding_a_token_never_allocates() {
        let mut h = history(3).duplicate(16).unwrap();
        let room = h.tokens.as_ptr();
        (3..16).for_each(|i| h.push(Token(i), Pos(i as i32)));
        assert_eq!(h.tokens.as_ptr(), room);
    }
}
