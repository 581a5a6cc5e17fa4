//! Requests to caches: operations on sequences, rollbacks, and the pass that a batch is for.
//!
//! The memory checks ids and ranges before it makes one, so caches need not.

use crate::ids::{Pos, SeqId};
use core::ops::Range;

/// Operation on a sequence. Sequence ids exist and ranges are valid.
///
/// [`Caches::admit`](super::Caches::admit) checks it everywhere, then
/// [`Caches::apply`](super::Caches::apply) does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Remove the tokens in a range.
    Remove { seq: SeqId, range: Range<Pos> },
    /// Make an empty sequence share the tokens in a range of another.
    Copy { src: SeqId, dst: SeqId, range: Range<Pos> },
    /// Move the tokens in a range.
    Move { seq: SeqId, range: Range<Pos>, by: Move },
}

/// Change of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Add this number, which may be negative.
    Add(i32),
    /// Divide by this number.
    Divide(i32),
}

impl Move {
    /// Return the position that `pos` moves to; 64 bits hold every result.
    pub fn moved(self, pos: Pos) -> i64 {
        match self {
            Move::Add(delta) => i64::from(pos.0) + i64::from(delta),
            Move::Divide(divisor) => i64::from(pos.0) / i64::from(divisor.max(1)),
        }
    }
}

/// Rollback of one sequence: the checkpoint to restore, and the journal rows to replay from there.
///
/// The rollback module chooses it; caches carry it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// Checkpoint to restore; `None` to cut the sequence with what it holds itself.
    pub checkpoint: Option<u32>,
    /// Position that the next token gets.
    pub to: Pos,
    /// Journal rows to replay, `n_ubatch` at a time.
    pub rows: Range<u32>,
    /// Most rows of one ubatch of the replay.
    pub n_ubatch: u32,
}

/// Pass through the model that a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Tokens continue their sequences.
    Decode,
    /// Whole inputs go through an encoder.
    Encode,
}
