//! Session and sequence files of llama.cpp.
//!
//! A *session* holds a whole context, all sequences of it; a *sequence* file or buffer holds one.
//! They say little about themselves: cells and states follow each other without names, and a reader
//! must know the model to find anything. That knowledge is a [`Layout`]. Nothing in a file proves
//! that this model made it, and no part of it has a checksum: what can be checked is, what cannot
//! be is the user's word.
//!
//! [`File::parse`] reads a file completely and checks it before anybody sees any of it; the result
//! describes itself as a [`Snapshot`] and is a [`Source`](backstitch_kv::snapshot::Source) of its
//! bytes, straight from the file. [`export`] writes what a
//! [`Content`](backstitch_kv::snapshot::Content) holds.
//!
//! | form | bytes in order |
//! |---|---|
//! | session | `ggsn` as u32, version 11, number of tokens, tokens, architecture, memory |
//! | sequence | `ggsq` as u32, version 4, number of tokens, tokens, memory |
//! | buffer | `0xaf143cd8`, i32 sequence, memory |
//!
//! The architecture is the length of its name and the name. Memory is the *caches* in order (all
//! layers that see everything, then those with a window), then the *states*. Sessions of version 10
//! and sequence files of version 3, whose caches lack two numbers, are read too.
//!
//! `file` reads these containers, `cells` caches, `states` states, `assemble` makes a snapshot of
//! what was read, `source` gives its bytes, `write` is the other way.

mod assemble;
mod cells;
mod error;
mod file;
mod layout;
mod moves;
mod of_model;
mod read;
mod source;
mod states;
#[cfg(test)]
mod tests;
mod tokens;
mod write;

pub use error::{Error, Section, Wanted};
pub use file::File;
pub use layout::{Layout, Order, Piece, Recurrent, Row};
pub(crate) use of_model::layout;
pub use write::export;

use backstitch_kv::Pos;
use backstitch_kv::snapshot::{Sequence, Snapshot};

const SESSION_MAGIC: u32 = 0x6767_736e;
/// The version of session files that are written.
pub const SESSION_VERSION: u32 = 11;
const SEQUENCE_MAGIC: u32 = 0x6767_7371;
/// The version of sequence files that are written.
pub const SEQUENCE_VERSION: u32 = 4;
/// The first four bytes of a buffer of one sequence.
const BUFFER_MAGIC: u32 = 0xaf14_3cd8;

/// The most sequences of a context of llama.cpp.
pub const MAX_SEQUENCES: u32 = 256;

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All sequences of a context.
    Session,
    /// One sequence, in a file.
    Sequence,
    /// One sequence, in a buffer.
    Buffer,
}

/// Options on which two contexts must agree to read each other's files, and the sequence that a
/// file of one names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of streams that the cells are kept in: one for all sequences (unified), or one
    /// for each.
    pub n_stream: u32,
    /// True if values lie transposed, which they do without flash attention.
    pub v_trans: bool,
    /// The sequence that a file of one sequence says it was, below [`MAX_SEQUENCES`].
    pub sequence: u32,
    /// True to write also the cells behind windows that are held to go back at once. llama.cpp does
    /// not need them, and may have no room for them.
    pub margin: bool,
}

/// Return the positions that a sequence reaches from and to, by what its first group and its state
/// know; none if it is empty.
pub(crate) fn range(snapshot: &Snapshot, sequence: &Sequence) -> Option<(Pos, Pos)> {
    let Some((cells, blocks)) = sequence.cells.first().zip(snapshot.blocks.first()) else {
        return sequence.state.map(|state| (state.first, sequence.last));
    };
    let (first, last) = (cells.positions(blocks).next()?, cells.last_pos(blocks)?);
    Some((if cells.whole_from > Pos::ZERO { cells.start.min(first) } else { first }, last))
}

impl Default for Options {
    /// Return one stream, flash attention, sequence 0, no cells behind windows.
    fn default() -> Self {
        Options { n_stream: 1, v_trans: false, sequence: 0, margin: false }
    }
}
