//! Description of what a sequence holds: blocks, recurrent states, checkpoints and journals, with
//! the bytes of each.
//!
//! A [`Survey`] is a copy of numbers. It changes nothing in the memory and keeps nothing alive.
//! Making one allocates and visits all sequences, so it is for drawings and reports, not for every
//! token.

use crate::ids::{Pos, SeqId};
use crate::kind::Kind;
use crate::layer::Window;
use crate::params::RollbackParams;
use alloc::vec::Vec;

/// Description of one sequence, made by [`Memory::survey`](crate::Memory::survey).
///
/// ```
/// use backstitch_kv::survey::Survey;
/// use backstitch_kv::{Kind, Pos, Retention, SeqId};
///
/// let survey = Survey::new(SeqId(0), Kind::Kv(Retention::All), Pos(0));
/// assert_eq!(survey.bytes().cells, 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// Number of the sequence.
    pub seq: SeqId,
    /// Kind of the memory.
    pub kind: Kind,
    /// Position that the next token gets.
    pub end: Pos,
    /// Groups of layers, one for each cache of the memory.
    pub layers: Vec<Layers>,
    /// Checkpoints of the sequence, ascending by position.
    pub checkpoints: Vec<Checkpoint>,
    /// Limits and use of checkpoints, all sequences together.
    pub budget: Budget,
}

/// Memory that the layers of one cache hold of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layers {
    /// Kind of the cache.
    pub kind: Kind,
    /// Number of layers.
    pub n_layer: usize,
    /// Window of the layers; `None` if their tokens see as far back as there are cells.
    pub window: Option<Window>,
    /// Least number of cells older than the window that stay.
    pub margin: u32,
    /// Blocks of the sequence, ascending by position.
    pub extents: Vec<Extent>,
    /// Bytes of a block, in all of these layers together.
    pub block_bytes: u64,
    /// Bytes of a recurrent state, in all of these layers together.
    pub state_bytes: u64,
    /// Number of sequences and checkpoints that share the current state; 0 if there is none.
    pub state_users: u32,
    /// Bytes that a journal holds of one token.
    pub row_bytes: u64,
    /// Bytes of states and blocks that checkpoints of the sequence hold and the sequence itself
    /// does not, each counted once.
    pub held_bytes: u64,
}

/// Block with cells of a sequence.
///
/// Forks share blocks until one of them appends to or moves the cells, so a block may have several
/// users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Number of the block.
    pub block: u32,
    /// Number of its cells that belong to the sequence.
    pub n_cells: u32,
    /// Position of the first of these cells.
    pub first: Pos,
    /// Position of the last of these cells.
    pub last: Pos,
    /// Number of sequences and checkpoints that use the block.
    pub users: u32,
    /// Number of sequences among the users.
    pub sequences: u32,
}

/// Checkpoint of a sequence: a position to which the sequence can return at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Position of the token that follows the checkpoint.
    pub pos: Pos,
    /// True if the caller pinned it, so that it stays until it is unpinned.
    pub is_pinned: bool,
    /// True if the checkpoint schedule wants a checkpoint at this position.
    pub is_scheduled: bool,
    /// Number of the tokens after it that its journal can replay.
    pub n_rows: u32,
    /// Number of sequences that share it.
    pub sequences: u32,
    /// Bytes of the recurrent states that it holds, shared or not.
    pub state_bytes: u64,
    /// Number of blocks of windowed caches that it holds.
    pub n_blocks: u32,
    /// Number of these blocks that nothing else uses.
    pub n_blocks_alone: u32,
    /// Bytes that dropping it would free.
    pub bytes_alone: u64,
}

/// Budget of checkpoints, all sequences of the memory together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Rollback parameters in force, after they were rounded and clamped to each other.
    pub params: RollbackParams,
    /// Most checkpoints that the bytes pay for, if their windows overlap; checkpoints at which
    /// journals begin come on top.
    pub n_paid: u32,
    /// Number of checkpoints that exist.
    pub n_checkpoints: u32,
}

/// Bytes that one sequence takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bytes {
    /// Bytes of the blocks with its cells.
    pub cells: u64,
    /// Bytes of the blocks among them that other sequences use as well.
    pub cells_shared: u64,
    /// Bytes of its current recurrent state.
    pub states: u64,
    /// Bytes that its checkpoints hold and the sequence itself does not.
    pub checkpoints: u64,
    /// Bytes of the rows of its journals.
    pub journal: u64,
}

impl Survey {
    /// Return a description of a sequence that ends at `end`, without layers and checkpoints.
    pub fn new(seq: SeqId, kind: Kind, end: Pos) -> Survey {
        Survey { seq, kind, end, layers: Vec::new(), checkpoints: Vec::new(), budget: Budget::default() }
    }

    /// Return the bytes that the sequence takes.
    ///
    /// Shared blocks count in full for each sequence, so sums over sequences can exceed the
    /// memory's size.
    pub fn bytes(&self) -> Bytes {
        let n_rows: u64 = self.checkpoints.iter().map(|checkpoint| u64::from(checkpoint.n_rows)).sum();
        let mut bytes = Bytes::default();
        for layers in &self.layers {
            let n_shared = layers.extents.iter().filter(|extent| extent.sequences > 1).count();
            bytes.cells += layers.extents.len() as u64 * layers.block_bytes;
            bytes.cells_shared += n_shared as u64 * layers.block_bytes;
            bytes.states += if layers.state_users > 0 { layers.state_bytes } else { 0 };
            bytes.checkpoints += layers.held_bytes;
            bytes.journal += n_rows * layers.row_bytes;
        }
        bytes
    }
}

impl Layers {
    /// Return a description of `n_layer` layers that hold nothing.
    pub fn new(kind: Kind, n_layer: usize) -> Layers {
        Layers {
            kind,
            n_layer,
            window: None,
            margin: 0,
            extents: Vec::new(),
            block_bytes: 0,
            state_bytes: 0,
            state_users: 0,
            row_bytes: 0,
            held_bytes: 0,
        }
    }
}
