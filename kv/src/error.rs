//! Errors of a memory, each with the value that was found and the one that was wanted.
//!
//! Values are numbers and ids only, so an error is small, `Copy`, and needs no allocation. Texts
//! name the value, what was wanted, and what the caller can do.

use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Operation};
use backstitch_core::cell::CellType;
use core::fmt;

/// Reason for which a memory refused a call. After any error the memory is as it was before the
/// call.
///
/// ```
/// use backstitch_kv::{Error, SeqId};
///
/// let error = Error::UnknownSequence { seq: SeqId(4), n_seq_max: 1 };
/// assert_eq!(error.to_string(), "no sequence 4: this memory has 1 sequence; raise n_seq_max");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No cells or states are free for a whole batch, or for the copies that an operation makes.
    #[error(
        "the cache is full at sequence {seq}: {} needed, {free} free; raise n_ctx or drop a sequence",
        Count(*.need, .what)
    )]
    Full {
        /// Resource that ran out: `"cells"` or `"states"`.
        what: &'static str,
        /// Amount that the call needs. Cells are allocated in blocks, so this can exceed the tokens
        /// of the batch.
        need: u64,
        /// Amount that is free.
        free: u64,
        /// First sequence that got none.
        seq: SeqId,
    },
    /// The position of a token does not follow the last position of its sequence.
    #[error(
        "token {index} of the batch has position {pos}, but sequence {seq} continues at {wanted}; \
         number its tokens from there"
    )]
    Order {
        /// Index of the token in the batch.
        index: u32,
        /// Sequence of the token.
        seq: SeqId,
        /// Position of the token.
        pos: Pos,
        /// Position that would follow.
        wanted: Pos,
    },
    /// The position of a token is negative, or too large to have a successor.
    #[error("token {index} of the batch has position {pos}, which is not valid; positions count from 0")]
    Position {
        /// Index of the token in the batch.
        index: u32,
        /// Position of the token.
        pos: Pos,
    },
    /// A sequence id is not below the memory's number of sequences.
    #[error("no sequence {seq}: this memory has {}; raise n_seq_max", Count((*.n_seq_max).into(), "sequences"))]
    UnknownSequence {
        /// Sequence id.
        seq: SeqId,
        /// Number of sequences of the memory.
        n_seq_max: u32,
    },
    /// A token of a batch names no sequence.
    #[error("token {index} of the batch has no sequence; name at least one")]
    NoSequence {
        /// Index of the token in the batch.
        index: u32,
    },
    /// A token of a batch names one sequence twice.
    #[error("token {index} of the batch names sequence {seq} twice; name it once")]
    RepeatedSequence {
        /// Index of the token in the batch.
        index: u32,
        /// Sequence that is named twice.
        seq: SeqId,
    },
    /// A token names several sequences that do not hold the same cells and states.
    #[error(
        "token {index} of the batch is for sequences {seq} and {other}, which hold different tokens; \
         give each sequence a token of its own"
    )]
    Diverged {
        /// Index of the token in the batch.
        index: u32,
        /// Sequence of the token.
        seq: SeqId,
        /// Sequence of the token that holds other cells.
        other: SeqId,
    },
    /// A token belongs to a sequence without encoder output.
    #[error("token {index} of the batch: sequence {seq} has no encoder output; encode its input first")]
    NotEncoded {
        /// Index of the token in the batch.
        index: u32,
        /// Sequence of the token.
        seq: SeqId,
    },
    /// A range of positions starts below zero or ends before it starts.
    #[error("positions {start}..{end} are not a range; start at 0 or later and end at the start or later")]
    Range {
        /// First position.
        start: Pos,
        /// Position after the last.
        end: Pos,
    },
    /// A moved range would pass its neighbour or leave the valid positions, so that positions would
    /// no longer ascend.
    #[error(
        "sequence {seq}: position {pos} cannot move to {moved}, out of the order of positions; \
         remove the tokens in between first or move by less"
    )]
    Overtakes {
        /// Sequence of the range.
        seq: SeqId,
        /// Position before the move.
        pos: Pos,
        /// Position after the move.
        moved: i64,
    },
    /// A divisor of positions is below one.
    #[error("positions cannot be divided by {divisor}; use 1 or more")]
    Divisor {
        /// Divisor that was given.
        divisor: i32,
    },
    /// Source and target of a copy are the same sequence.
    #[error("sequence {seq} cannot be copied onto itself; name another target")]
    SameSequence {
        /// Source and target.
        seq: SeqId,
    },
    /// The target of a copy holds tokens already.
    #[error("sequence {seq} holds tokens; remove them before copying onto it")]
    Occupied {
        /// Target.
        seq: SeqId,
    },
    /// A cache of this kind cannot do the operation on this range.
    #[error("{op} of this range is impossible on a {kind}: {}", .kind.reason())]
    Unsupported {
        /// Operation.
        op: Operation,
        /// Kind of the cache.
        kind: Kind,
    },
    /// The budget of checkpoints pays for no further pinned position.
    #[error(
        "{} of checkpoints pay for {}; unpin one or raise checkpoint_bytes",
        Size(*.checkpoint_bytes),
        Count((*.limit).into(), "pinned positions")
    )]
    Pinned {
        /// Number of pinned positions that use the budget up.
        limit: u32,
        /// Budget, in bytes.
        checkpoint_bytes: u64,
    },
    /// A sequence has not reached the position.
    #[error(
        "sequence {seq} has not reached position {pos}, it ends at {end}; choose {end} or an earlier one"
    )]
    Future {
        /// Sequence.
        seq: SeqId,
        /// Position that was given.
        pos: Pos,
        /// Position that its next token gets.
        end: Pos,
    },
    /// A count exceeds a limit of the memory.
    #[error("too many {what}: {value}, at most {limit}")]
    TooMany {
        /// Things that were counted, in the plural.
        what: &'static str,
        /// Count that was found.
        value: u64,
        /// Largest count that is possible.
        limit: u64,
    },
    /// Operations changed cells of a memory without storage, and the changes were not taken yet.
    #[error(
        "{} to stored cells not taken yet; make those that take_changes returns first",
        Count(*.n_changes, "changes")
    )]
    Unfollowed {
        /// Number of changes that wait.
        n_changes: u64,
    },
    /// The call needs the bytes of cells or states, and the memory was made without storage.
    #[error("this memory was made without storage; read and write the bytes where the engine keeps them")]
    NoStorage,
    /// A batch mixes tokens and embeddings, or has embeddings of another length than it was made
    /// for.
    #[error(
        "a batch of {} has {}; give tokens or whole embeddings, not both",
        Count(*.n_tokens, "tokens"),
        Count(*.n_values, "embedding values")
    )]
    MixedInputs {
        /// Number of tokens of the batch.
        n_tokens: u64,
        /// Number of elements of its embeddings.
        n_values: u64,
    },
    /// A slice has another length than its use asks for.
    #[error("{what}: {found} given, {wanted} wanted; give as many as wanted")]
    Shape {
        /// Use of the slice.
        what: &'static str,
        /// Length of the slice.
        found: u64,
        /// Length that its use asks for.
        wanted: u64,
    },
    /// The specification of a layer is impossible: its sizes, or the layer whose cache it shares.
    #[error("layer {layer}: {what}")]
    Layer {
        /// Number of the layer.
        layer: u32,
        /// Finding, as a clause.
        what: &'static str,
    },
    /// A plan was committed before all of its ubatches were started.
    #[error(
        "the plan was committed after {started} of {}; compute all of them or drop the plan",
        Count((*.n_ubatch).into(), "ubatches")
    )]
    Unfinished {
        /// Number of ubatches that were started.
        started: u32,
        /// Number of ubatches of the plan.
        n_ubatch: u32,
    },
    /// A snapshot contradicts itself.
    #[error("the saved state contradicts itself: {what} {index}; save it again")]
    Snapshot {
        /// Contradiction that was found.
        what: &'static str,
        /// Number of the group, block, checkpoint or sequence.
        index: u64,
    },
    /// A snapshot is of layers of another shape than the memory has.
    #[error(
        "the saved state is of another model: {what} of layer {index}: {found} found, {wanted} wanted; \
         load it with the model that it was saved with"
    )]
    Mismatch {
        /// Property that differs.
        what: &'static str,
        /// Number of the layer of the model, or of the group of layers.
        index: u32,
        /// Value of the snapshot.
        found: u64,
        /// Value of the memory.
        wanted: u64,
    },
    /// A snapshot has cells of another element type than the memory.
    #[error(
        "the saved state has {} cells from layer {layer} on, this context {}; \
         choose the same type or ask for conversion",
        .found.name(),
        .wanted.name()
    )]
    CellType {
        /// First layer of the group.
        layer: u32,
        /// Element type of the snapshot.
        found: CellType,
        /// Element type of the memory.
        wanted: CellType,
    },
    /// A snapshot lacks cells that the window of this memory would retain.
    #[error(
        "sequence {seq} was saved without the cells below position {whole_from}, \
         which this context would keep; raise n_ctx"
    )]
    Gone {
        /// Sequence of the snapshot.
        seq: SeqId,
        /// Position below which cells are missing.
        whole_from: Pos,
    },
    /// The allocator refused.
    #[error("no memory for {}; lower n_ctx, n_seq_max or the size of cell types", Size(*.bytes))]
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: u64,
    },
}

/// Number of things, named in the plural, that displays as "1 token" or "2 tokens".
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(n, plural) = *self;
        let singular = plural.strip_suffix("ches").map(|stem| (stem, "ch"));
        let singular = singular.or(plural.strip_suffix('s').map(|stem| (stem, "")));
        match singular.filter(|_| n == 1) {
            Some((stem, end)) => write!(f, "1 {stem}{end}"),
            None => write!(f, "{n} {plural}"),
        }
    }
}

/// Number of bytes that displays in the largest unit of which there is at least one, in tenths,
/// rounded down.
///
/// ```
/// use backstitch_kv::Size;
///
/// assert_eq!([Size(3), Size(3 << 29)].map(|size| size.to_string()), ["3 bytes", "1.5 GiB"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Some((shift, unit)) = units.into_iter().find(|(shift, _)| self.0 >> shift > 0) else {
            return Count(self.0, "bytes").fmt(f);
        };
        let tenths = (u128::from(self.0) * 10) >> shift;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {unit}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Error>() <= 48);
    }

    #[test]
    fn errors_name_the_value_and_the_way_out() {
        let cases = [
            (
                Error::Full { what: "cells", need: 64, free: 32, seq: SeqId(3) },
                "the cache is full at sequence 3: 64 cells needed, 32 free; raise n_ctx or drop a sequence",
            ),
            (
                Error::Order { index: 3, seq: SeqId(1), pos: Pos(9), wanted: Pos(7) },
                "token 3 of the batch has position 9, but sequence 1 continues at 7; number its tokens from there",
            ),
            (
                Error::Unsupported { op: Operation::Remove, kind: Kind::Recurrent },
                "seq_rm of this range is impossible on a recurrent state: it cannot drop single tokens",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
    #[test]
    fn counts_agree_in_number_and_sizes_are_readable() {
        let texts = [
            (Error::Unfinished { started: 0, n_ubatch: 1 }, "after 0 of 1 ubatch;"),
            (Error::Unfinished { started: 1, n_ubatch: 2 }, "after 1 of 2 ubatches;"),
            (Error::UnknownSequence { seq: SeqId(1), n_seq_max: 1 }, "has 1 sequence;"),
            (
                Error::Pinned { limit: 1, checkpoint_bytes: 256 << 20 },
                "256 MiB of checkpoints pay for 1 pinned position;",
            ),
            (Error::OutOfMemory { bytes: 1 }, "for 1 byte;"),
            (Error::OutOfMemory { bytes: 1023 }, "for 1023 bytes;"),
            (Error::OutOfMemory { bytes: 3 << 29 }, "for 1.5 GiB;"),
            (Error::OutOfMemory { bytes: u64::MAX }, "for 16777215.9 TiB;"),
        ];
        for (error, text) in texts {
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
