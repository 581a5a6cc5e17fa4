//! One interface for every kind of memory.
//!
//! A [`Memory`] holds sequences. It changes in two ways only: by the operations (`seq_rm`, `seq_cp`, ...), each of
//! which either happens or returns an error and changes nothing; and by a [`Plan`](crate::Plan), which reserves room
//! for a batch, hands out what compute needs for it, and then either becomes visible or leaves no trace.
//!
//! [`Hybrid`] is the implementation: it composes, layer by layer, *parts* of one kind each. A plain transformer is a
//! hybrid of one part. A part sees only calls that the hybrid has checked already.

mod ask;
mod back;
mod cells;
mod cross;
mod elsewhere;
mod hybrid;
mod none;
mod recurrent;
mod snapshot;
mod stage;
mod survey;
#[cfg(test)]
mod tests;
mod unified;

pub use hybrid::Hybrid;
pub use recurrent::StateRun;
pub use snapshot::Snapshot;
pub use stage::{Conversion, Fit, StageError, Staged};
#[cfg(any(test, feature = "oracle"))]
pub(crate) use unified::turn_cells;
pub use unified::{Cell, Visible};

use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::plan::{Attention, Plan, States, Store};
use crate::rewind::{Rewind, Stretch};
use crate::split::{Schedule, Split};
use crate::storage::Change;
use crate::survey::{Held, Layers};
use crate::timeline::Route;
use alloc::vec::Vec;
use cells::CellPart;
use core::fmt;
use core::ops::Range;
use recurrent::Recurrent;
use unified::Swap;

/// What a memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Keeps nothing between batches.
    None,
    /// All keys and values of all tokens.
    Unified,
    /// Keys and values of the tokens that a window shows.
    Windowed,
    /// A state of fixed size after the last token.
    Recurrent,
    /// The text that an encoder saw.
    Cross,
    /// Several kinds, chosen by layer.
    Hybrid,
}

impl Kind {
    /// Why operations can be impossible on it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Kind::Recurrent => "it keeps the state after the last token only",
            Kind::Windowed => "cells that would be seen from there are gone",
            Kind::None => "it keeps nothing",
            Kind::Unified | Kind::Cross | Kind::Hybrid => "its cells do not allow it",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::None => "none",
            Kind::Unified => "unified",
            Kind::Windowed => "windowed",
            Kind::Recurrent => "recurrent",
            Kind::Cross => "cross",
            Kind::Hybrid => "hybrid",
        })
    }
}

/// The name of an operation, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `seq_rm`.
    Remove,
    /// `seq_cp`.
    Copy,
    /// `seq_keep`.
    Keep,
    /// `seq_add`.
    Add,
    /// `seq_div`.
    Divide,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Remove => "seq_rm",
            Operation::Copy => "seq_cp",
            Operation::Keep => "seq_keep",
            Operation::Add => "seq_add",
            Operation::Divide => "seq_div",
        })
    }
}

/// The memory of a model: sequences of tokens it has seen.
///
/// Ranges are of positions; [`Pos::ZERO`] and [`Pos::MAX`] make an open start and end. A range without tokens is
/// fine and changes nothing. Every operation costs what it changes; a copy, an entry for each 32 cells. After an error
/// nothing has changed.
///
/// # Errors
/// All operations: [`Error::UnknownSequence`], and [`Error::Range`] for a range that is none.
pub trait Memory: Send {
    /// What it is made of.
    fn kind(&self) -> Kind;

    /// How many sequences it has.
    fn n_seq_max(&self) -> u32;

    /// Removes the tokens of `range` from `seq`.
    ///
    /// A recurrent state cannot forget single tokens. A range that ends before the last token leaves it as it is,
    /// having seen the removed tokens, as llama.cpp does; so on a hybrid the attention layers forget them and the
    /// recurrent layers do not.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a recurrent layer would need an older state: the range takes the last token but
    /// not all. Remove everything, or evaluate again.
    fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error>;

    /// Gives the tokens of `range` of `src` to `dst` as well, which is empty before. Nothing is copied: blocks and
    /// states are shared until one of the two changes.
    ///
    /// # Errors
    /// [`Error::SameSequence`]; [`Error::Occupied`] if `dst` holds tokens; [`Error::Unsupported`] where a recurrent
    /// layer has tokens in `range`, but not all of the sequence's.
    fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error>;

    /// Removes every sequence but `seq`.
    fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error>;

    /// Moves the tokens of `range` by `delta` positions. Keys are turned to their new position, once, from their
    /// stored values, and rounded again, which quantised cells feel most; what other sequences share is copied first. Tokens moved below
    /// zero are removed.
    ///
    /// # Errors
    /// [`Error::Overtakes`] if tokens would pass others or leave the valid positions; [`Error::Full`] if there is no
    /// room for a copy; [`Error::Unsupported`] if tokens are removed as `seq_rm` could not.
    fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error>;

    /// Divides the positions of `range` by `divisor`, rounding down; otherwise like `seq_add`.
    ///
    /// # Errors
    /// [`Error::Divisor`] if it is below 1; else those of `seq_add`.
    fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error>;

    /// The first position that every layer of `seq` can account for; `None` if it is empty or unknown.
    ///
    /// A recurrent layer accounts for its last position only.
    fn seq_pos_min(&self, seq: SeqId) -> Option<Pos>;

    /// The last position of `seq`; `None` if it is empty or unknown.
    fn seq_pos_max(&self, seq: SeqId) -> Option<Pos>;

    /// Removes all sequences.
    fn clear(&mut self);

    /// What it takes to bring `seq` back to where its next position is `pos`.
    ///
    /// # Errors
    /// [`Error::Future`] if the sequence never got there; [`Error::Range`] for a negative position.
    fn route(&self, seq: SeqId, pos: Pos) -> Result<Route, Error>;

    /// Prepares to take `seq` back to `pos`, or, if tokens have to be evaluated again, to the checkpoint before it; the journal is
    /// replayed in ubatches of at most `n_ubatch` tokens.
    ///
    /// # Errors
    /// As [`Memory::route`], and [`Error::Full`] if there is no room for a state.
    fn rewind(&mut self, seq: SeqId, pos: Pos, n_ubatch: usize) -> Result<Rewind<'_>, Error>;

    /// Makes the end of `seq` a position that can be gone back to at once, until it is unpinned or left behind.
    ///
    /// # Errors
    /// [`Error::Pinned`] if the budget of checkpoints does not pay for it.
    fn pin(&mut self, seq: SeqId) -> Result<(), Error>;

    /// Takes a pin away; false if there is none.
    ///
    /// # Errors
    /// None but the common ones.
    fn unpin(&mut self, seq: SeqId, pos: Pos) -> Result<bool, Error>;

    /// Which positions of `seq` can be gone back to in which way, ascending, the current end included.
    ///
    /// # Errors
    /// None but the common ones.
    fn positions(&self, seq: SeqId) -> Result<Vec<Stretch>, Error>;

    /// Reserves room for all of `batch`, splits it into ubatches of at most `n_ubatch` tokens, and returns the plan
    /// to compute them by. Nothing is visible until the plan is committed; dropping it undoes everything.
    ///
    /// Allocates nothing once a batch of that size has been prepared.
    ///
    /// # Errors
    /// [`Error::Full`] if the batch does not fit as a whole; [`Error::Order`] if a token does not follow the last of
    /// its sequence; [`Error::Diverged`] for a token of several sequences that do not hold the same; those that name
    /// what is wrong with the batch itself; [`Error::OutOfMemory`].
    fn prepare<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error>;
}

/// A checked operation on all layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Remove { seq: SeqId, range: Range<Pos> },
    Copy { src: SeqId, dst: SeqId, range: Range<Pos> },
    Keep { seq: SeqId },
    Add { seq: SeqId, range: Range<Pos>, delta: i32 },
    Divide { seq: SeqId, range: Range<Pos>, divisor: i32 },
    Clear,
}

impl Op {
    /// Where `pos` ends up, for the operations that move; 64 bits hold every result.
    pub(crate) fn moved(&self, pos: Pos) -> i64 {
        match *self {
            Op::Add { delta, .. } => i64::from(pos.0) + i64::from(delta),
            Op::Divide { divisor, .. } => i64::from(pos.0) / i64::from(divisor.max(1)),
            _ => i64::from(pos.0),
        }
    }
}

/// Where a sequence goes back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// The checkpoint to start from; `None`: nothing, or, where a part can, what the sequence holds itself.
    pub checkpoint: Option<u32>,
    /// The position that the next token gets.
    pub to: Pos,
    /// Rows of the journals to step states through, in pieces of so many at once.
    pub rows: Range<u32>,
    pub n_ubatch: u32,
}

/// What a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Its tokens go on with their sequences.
    Decode,
    /// It holds whole texts for an encoder.
    Encode,
}

/// The layers of one kind. Sequence ids and ranges given to it are valid, batches are checked and in order.
pub(crate) trait Part: Send {
    fn kind(&self) -> Kind;

    /// How a batch must be split for it.
    fn split(&self) -> Split;

    /// Whether `op` can be done; makes room for it, but changes nothing that can be seen.
    fn admit(&mut self, op: &Op) -> Result<(), Error>;

    /// Does what `admit` allowed.
    fn apply(&mut self, op: &Op);

    fn pos_min(&self, seq: SeqId) -> Option<Pos>;

    fn pos_max(&self, seq: SeqId) -> Option<Pos>;

    /// Whether `seq` can go back to where its next position is `pos` with what it holds itself.
    fn can_cut(&self, seq: SeqId, pos: Pos) -> bool;

    /// The first position from which on `seq` can be cut anywhere, if nothing is missing in between.
    fn cut_from(&self, seq: SeqId) -> Pos;

    /// Whether `seq` has seen a token in a range of positions, still held or not.
    fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool;

    /// Keeps as checkpoint `id` what a sequence needs to go on from `pos`; called when the plan that staged the checkpoint is
    /// committed.
    fn hold(&mut self, id: u32, seq: SeqId, pos: Pos);

    /// Keeps as checkpoint `id` what `seq` needs to go on from its end, `pos`.
    fn hold_tip(&mut self, id: u32, seq: SeqId, pos: Pos) {
        self.hold(id, seq, pos);
    }

    /// Keeps as checkpoint `id`, which is held at the end of `seq`, all that `seq` has.
    fn hold_all(&mut self, _id: u32, _seq: SeqId) {}

    /// Forgets a checkpoint.
    fn let_go(&mut self, id: u32);

    /// Finds the room that going back to `to` takes, and stages it; undone by `undo`.
    fn reserve_rewind(&mut self, _seq: SeqId, _from: &Restore) -> Result<(), Error> {
        Ok(())
    }

    /// Takes a sequence back; what was staged by `reserve_rewind` becomes visible.
    fn rewind(&mut self, seq: SeqId, from: &Restore);

    /// Frees what sequences of the committed plan no longer need.
    fn settle(&mut self) {}

    /// Finds room for a whole batch; on error it is as if it had not been called.
    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error>;

    /// Checks what can be said about room for a batch of any length before it is reserved piece by piece.
    fn admits(&self, _batch: &Batch) -> Result<(), Error> {
        Ok(())
    }

    /// The most tokens of a sequence, if there is a limit.
    fn limit(&self) -> Option<u32> {
        None
    }

    /// Whether other sequences use cells that `seq` holds from `pos` on and that can run out.
    fn shares_cells(&self, _seq: SeqId, _pos: Pos) -> bool {
        false
    }

    /// Called before `reserve`: what the batch is for.
    fn enter(&mut self, _pass: Pass) {}

    /// Drops what a sequence has beside its tokens.
    fn forget(&mut self, _seq: SeqId) {}

    /// Called before each ubatch is computed, in order.
    fn begin(&mut self, _ubatch: u32) {}

    /// Makes what was reserved and computed visible.
    fn commit(&mut self);

    /// Forgets what was reserved.
    fn undo(&mut self);

    /// Shared blocks that the plan exchanges for copies.
    fn swaps(&self) -> &[Swap] {
        &[]
    }

    /// Runs of tokens that step recurrent states.
    fn runs(&self) -> &[StateRun] {
        &[]
    }

    /// Blocks of cells.
    fn n_blocks(&self) -> u32 {
        0
    }

    /// What operations changed, if somebody wants to know; the cache is not named yet.
    fn listed(&mut self) -> Option<&mut Vec<Change>> {
        None
    }

    /// Keys and values of `layer` (its number within the part) as tokens `range` of the schedule see them.
    fn attention(&self, _layer: usize, _tokens: Range<usize>) -> Option<Attention<'_>> {
        None
    }

    /// Where tokens `range` of the schedule store their keys and values.
    fn store(&mut self, _layer: usize, _tokens: Range<usize>) -> Option<Store<'_>> {
        None
    }

    /// The states that runs `range` of the schedule read and write.
    fn states(&mut self, _layer: usize, _part: usize, _runs: Range<usize>) -> Option<States<'_>> {
        None
    }

    /// The part as one that keeps cells from batch to batch, if it is one.
    fn as_cells(&self) -> Option<&dyn CellPart> {
        None
    }

    fn as_cells_mut(&mut self) -> Option<&mut dyn CellPart> {
        None
    }

    /// The part as the one that keeps recurrent states, if it is.
    fn as_states(&self) -> Option<&Recurrent> {
        None
    }

    fn as_states_mut(&mut self) -> Option<&mut Recurrent> {
        None
    }

    /// What the layers hold of `seq`, and what they hold for each of its checkpoints.
    fn survey(&self, seq: SeqId, checkpoints: &[u32]) -> (Layers, Vec<Held>);

    /// Position, key and value of every token of `seq`, in order.
    #[cfg(any(test, feature = "oracle"))]
    fn cells(&self, _layer: usize, _seq: SeqId) -> Vec<(Pos, crate::oracle::Rows)> {
        Vec::new()
    }

    /// Position and place of every token of `seq`, in order.
    #[cfg(any(test, feature = "oracle"))]
    fn cell_places(&self, _seq: SeqId) -> Vec<(Pos, Cell)> {
        Vec::new()
    }

    /// The slot of the state after the last token of `seq`.
    #[cfg(any(test, feature = "oracle"))]
    fn state_slot(&self, _seq: SeqId) -> Option<u32> {
        None
    }

    /// The first piece of the state after the last token of `seq`.
    #[cfg(any(test, feature = "oracle"))]
    fn state(&self, _layer: usize, _seq: SeqId) -> Option<&[f32]> {
        None
    }

    /// Free blocks.
    #[cfg(any(test, feature = "oracle"))]
    fn n_free_blocks(&self) -> u32 {
        0
    }

    /// Says what does not add up.
    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String>;
}
