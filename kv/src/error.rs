//! What can be wrong with a call, each with the value that was wrong.

use crate::ids::{Pos, SeqId};
use crate::memory::{Kind, Operation};
use backstitch_core::cell::CellType;
use core::fmt;

/// Why a memory refused; after any error the memory is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The memory has no room for the whole batch, or for the copies an operation needs.
    Full {
        /// What ran out: `"cells"` or `"states"`.
        what: &'static str,
        /// How many the call needed. Cells are handed out in blocks, so this can be more than the batch has tokens.
        need: u64,
        /// How many were free.
        free: u64,
        /// The sequence that there was no room for, the first of them if there are several.
        seq: SeqId,
    },
    /// A token does not follow the last position of its sequence.
    Order {
        /// Index of the token in the batch.
        index: u32,
        /// The sequence.
        seq: SeqId,
        /// The position given.
        pos: Pos,
        /// The position that would follow.
        wanted: Pos,
    },
    /// A token's position is negative, or too large to have a successor.
    Position {
        /// Index of the token in the batch.
        index: u32,
        /// The position given.
        pos: Pos,
    },
    /// A sequence id that the memory was not made for.
    UnknownSequence {
        /// The id given.
        seq: SeqId,
        /// How many sequences the memory has.
        n_seq_max: u32,
    },
    /// A token of a batch belongs to no sequence.
    NoSequence {
        /// Index of the token in the batch.
        index: u32,
    },
    /// A token of a batch names the same sequence twice.
    RepeatedSequence {
        /// Index of the token in the batch.
        index: u32,
        /// The sequence.
        seq: SeqId,
    },
    /// One token was given for sequences that do not hold the same cells.
    Diverged {
        /// Index of the token in the batch.
        index: u32,
        /// A sequence of the token.
        seq: SeqId,
        /// Another that holds other cells.
        other: SeqId,
    },
    /// A token of a sequence for which no text was encoded.
    NotEncoded {
        /// Index of the token in the batch.
        index: u32,
        /// The sequence.
        seq: SeqId,
    },
    /// A range that starts below zero or ends before it starts.
    Range {
        /// First position.
        start: Pos,
        /// Position after the last.
        end: Pos,
    },
    /// Positions would no longer ascend: a moved range would pass its neighbour, or leave the valid positions.
    Overtakes {
        /// The sequence.
        seq: SeqId,
        /// A position before the move.
        pos: Pos,
        /// Where it would have moved.
        moved: i64,
    },
    /// A divisor below one.
    Divisor {
        /// The divisor given.
        divisor: i32,
    },
    /// A sequence was copied onto itself.
    SameSequence {
        /// The sequence.
        seq: SeqId,
    },
    /// The target of a copy holds tokens already.
    Occupied {
        /// The target.
        seq: SeqId,
    },
    /// What this kind of memory cannot do.
    Unsupported {
        /// The operation.
        op: Operation,
        /// The kind that cannot do it.
        kind: Kind,
    },
    /// No further position can be pinned.
    Pinned {
        /// How many checkpoints the budget pays for.
        limit: u32,
        /// The budget.
        checkpoint_bytes: u64,
    },
    /// A position that the sequence has not reached.
    Future {
        /// The sequence.
        seq: SeqId,
        /// The position given.
        pos: Pos,
        /// The position that its next token gets.
        end: Pos,
    },
    /// More than the memory was made for.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        value: u64,
        /// The most there can be.
        limit: u64,
    },
    /// A memory without storage changed cells, and nobody took the changes.
    Unfollowed {
        /// How many changes wait.
        n_changes: u64,
    },
    /// The bytes were asked of a memory that does not keep them.
    NoStorage,
    /// A batch has tokens and embeddings, or embeddings of another length than it was made for.
    MixedInputs {
        /// Tokens of the batch.
        n_tokens: u64,
        /// Numbers in its embeddings.
        n_values: u64,
    },
    /// A slice has another length than its use asks for.
    Shape {
        /// What the slice is.
        what: &'static str,
        /// Its length.
        found: u64,
        /// The length it should have.
        wanted: u64,
    },
    /// A layer shares the cache of one that has none of its own, or its sizes are impossible.
    Layer {
        /// The layer.
        layer: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A plan was committed before all of its ubatches were handed out.
    Unfinished {
        /// Ubatches handed out.
        started: u32,
        /// Ubatches of the plan.
        n_ubatch: u32,
    },
    /// A description of what sequences hold contradicts itself.
    Image {
        /// What is wrong.
        what: &'static str,
        /// The number of the group, block, checkpoint or sequence.
        index: u64,
    },
    /// What was saved is of layers of another shape than the memory has.
    Mismatch {
        /// What differs.
        what: &'static str,
        /// The layer of the model, or the group of layers.
        index: u32,
        /// What was saved.
        found: u64,
        /// What the memory has.
        wanted: u64,
    },
    /// What was saved has elements of another type than the memory's cells.
    CellType {
        /// The first layer of the group.
        layer: u32,
        /// The saved type.
        found: CellType,
        /// The memory's.
        wanted: CellType,
    },
    /// Cells of a window that the memory would keep were gone when the sequence was saved.
    Gone {
        /// The sequence.
        seq: SeqId,
        /// The position below which they are gone.
        whole_from: Pos,
    },
    /// The allocator refused.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Full { what, need, free, seq } => write!(
                f,
                "cache is full at sequence {seq}: {need} {what} needed, {free} free; raise n_ctx or drop a sequence"
            ),
            Error::Order { index, seq, pos, wanted } => {
                write!(f, "token {index} of the batch: sequence {seq} continues at {wanted}, not at {pos}")
            }
            Error::Position { index, pos } => {
                write!(f, "token {index} of the batch: {pos} is no position; they count from 0")
            }
            Error::UnknownSequence { seq, n_seq_max } => {
                write!(f, "no sequence {seq}: this memory has {n_seq_max}; raise n_seq_max")
            }
            Error::NoSequence { index } => {
                write!(f, "token {index} of the batch has no sequence; give at least one")
            }
            Error::RepeatedSequence { index, seq } => {
                write!(f, "token {index} of the batch names sequence {seq} twice; name it once")
            }
            Error::Diverged { index, seq, other } => write!(
                f,
                "token {index} of the batch is for sequences {seq} and {other}, which hold other tokens; give each its own"
            ),
            Error::NotEncoded { index, seq } => {
                write!(
                    f,
                    "token {index} of the batch: sequence {seq} has no text to decode from; encode one first"
                )
            }
            Error::Range { start, end } => {
                write!(
                    f,
                    "positions {start}..{end} are no range; start at 0 or later and end after the start"
                )
            }
            Error::Overtakes { seq, pos, moved } => write!(
                f,
                "sequence {seq}: moving position {pos} to {moved} would break the order of positions; remove what is in the way"
            ),
            Error::Divisor { divisor } => {
                write!(f, "positions cannot be divided by {divisor}; use 1 or more")
            }
            Error::SameSequence { seq } => {
                write!(f, "sequence {seq} cannot be copied onto itself; name another")
            }
            Error::Occupied { seq } => {
                write!(f, "sequence {seq} holds tokens; remove them before copying onto it")
            }
            Error::Unsupported { op, kind } => {
                write!(f, "{op} of this range on a {kind} memory is impossible: {}", kind.reason())
            }
            Error::Pinned { limit, checkpoint_bytes } => write!(
                f,
                "{checkpoint_bytes} bytes of checkpoints pay for {limit} pinned positions; unpin one or raise checkpoint_bytes"
            ),
            Error::Future { seq, pos, end } => {
                write!(f, "sequence {seq} ends at {end}: {pos} was not reached; go back to {end} or before")
            }
            Error::Unfollowed { n_changes } => write!(
                f,
                "{n_changes} changes to cells wait for the storage elsewhere; take_changes and make them first"
            ),
            Error::NoStorage => {
                f.write_str("this memory keeps no bytes; read and write them where the engine has them")
            }
            Error::TooMany { what, value, limit } => write!(f, "{value} {what}: {limit} at most"),
            Error::MixedInputs { n_tokens, n_values } => write!(
                f,
                "a batch of {n_tokens} tokens has {n_values} embedding values; give tokens or whole embeddings, not both"
            ),
            Error::Shape { what, found, wanted } => write!(f, "{what}: {found} given, {wanted} wanted"),
            Error::Layer { layer, what } => write!(f, "layer {layer}: {what}"),
            Error::Unfinished { started, n_ubatch } => {
                write!(
                    f,
                    "plan committed after {started} of {n_ubatch} ubatches; compute them all or drop the plan"
                )
            }
            Error::Image { what, index } => {
                write!(f, "the saved state contradicts itself: {what} {index}; save it again")
            }
            Error::Mismatch { what, index, found, wanted } => write!(
                f,
                "the state is of another cache: {what} of layer {index} is {found}, this context has {wanted}"
            ),
            Error::CellType { layer, found, wanted } => write!(
                f,
                "the state has {} cells from layer {layer} on, this context {}; choose the same type or ask for conversion",
                found.name(),
                wanted.name()
            ),
            Error::Gone { seq, whole_from } => write!(
                f,
                "sequence {seq} was saved without the cells below {whole_from}, which this context would keep; give it a larger n_ctx"
            ),
            Error::OutOfMemory { bytes } => {
                write!(f, "no memory for {bytes} bytes; lower n_ctx, n_seq_max or the cache's element size")
            }
        }
    }
}

impl core::error::Error for Error {}

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
                "cache is full at sequence 3: 64 cells needed, 32 free; raise n_ctx or drop a sequence",
            ),
            (
                Error::Order { index: 3, seq: SeqId(1), pos: Pos(9), wanted: Pos(7) },
                "token 3 of the batch: sequence 1 continues at 7, not at 9",
            ),
            (
                Error::Unsupported { op: Operation::Remove, kind: Kind::Recurrent },
                "seq_rm of this range on a recurrent memory is impossible: it keeps the state after the last token only",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
