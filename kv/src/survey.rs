//! What a sequence holds, described for people: blocks, states, checkpoints, journals, and the bytes of each.
//!
//! A [`Survey`] is a copy of numbers; it changes nothing and keeps nothing alive. Making one allocates and looks at all
//! sequences, so it is for drawings and reports, not for every token.

use crate::ids::{Pos, SeqId};
use crate::layer::Window;
use crate::memory::Kind;
use crate::timeline::TimelineParams;
use alloc::vec::Vec;

/// What one sequence holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The sequence.
    pub seq: SeqId,
    /// What its memory is made of.
    pub kind: Kind,
    /// The position that its next token gets.
    pub end: Pos,
    /// What its layers hold, those of one kind together.
    pub layers: Vec<Layers>,
    /// Where it can be restored from, ascending.
    pub checkpoints: Vec<Checkpoint>,
    /// What checkpoints may cost.
    pub budget: Budget,
}

/// What layers of one kind hold of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layers {
    /// How they remember.
    pub kind: Kind,
    /// How many there are.
    pub n_layer: usize,
    /// How far back their tokens see; `None`: as far as there is something.
    pub window: Option<Window>,
    /// How many cells older than the window stay at least.
    pub margin: u32,
    /// Their blocks, positions ascending.
    pub extents: Vec<Extent>,
    /// Bytes of a block, in all of these layers together.
    pub block_bytes: u64,
    /// Bytes of a recurrent state, in all of these layers together.
    pub state_bytes: u64,
    /// How many sequences and checkpoints share the state after the last token; 0: there is none.
    pub state_users: u32,
    /// Bytes of what a journal holds of one token.
    pub row_bytes: u64,
    /// Bytes of states and blocks that checkpoints of the sequence hold and the sequence itself does not, each counted once.
    pub held_bytes: u64,
}

/// A block with cells of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Its number.
    pub block: u32,
    /// How many of its cells are the sequence's.
    pub n_cells: u32,
    /// The position of the first of them.
    pub first: Pos,
    /// The position of the last of them.
    pub last: Pos,
    /// How many sequences and checkpoints use the block.
    pub users: u32,
    /// How many of those are sequences.
    pub sequences: u32,
}

/// A position that a sequence can be restored from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The position of the token that follows.
    pub pos: Pos,
    /// Whether it stays until it is unpinned.
    pub is_pinned: bool,
    /// Whether it is a rung of the ladder.
    pub is_rung: bool,
    /// How many of the tokens that follow are in its journal.
    pub n_rows: u32,
    /// How many sequences have it.
    pub sequences: u32,
    /// Bytes of the recurrent states it holds, shared or not.
    pub state_bytes: u64,
    /// Blocks of windows that it holds.
    pub n_blocks: u32,
    /// Those of them that nothing else uses.
    pub n_blocks_alone: u32,
    /// Bytes that its end would free.
    pub bytes_alone: u64,
}

/// What is kept for going back, of all sequences together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// What was asked for, with what its fields promise about each other made true.
    pub params: TimelineParams,
    /// How many checkpoints the bytes pay for; those at which journals begin come on top.
    pub n_paid: u32,
    /// How many there are.
    pub n_checkpoints: u32,
}

/// What a sequence takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bytes {
    /// Blocks with its cells.
    pub cells: u64,
    /// Those of them that other sequences have as well.
    pub cells_shared: u64,
    /// The recurrent states after its last token.
    pub states: u64,
    /// What its checkpoints hold and it does not hold itself.
    pub checkpoints: u64,
    /// Rows of its journals.
    pub journal: u64,
}

impl Survey {
    /// A sequence of a memory of this kind that ends at `end`, of which nothing more is said.
    pub fn new(seq: SeqId, kind: Kind, end: Pos) -> Survey {
        Survey { seq, kind, end, layers: Vec::new(), checkpoints: Vec::new(), budget: Budget::default() }
    }

    /// What the sequence takes.
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
    /// Layers that hold nothing.
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

/// What layers of one kind hold for a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub state_bytes: u64,
    pub n_blocks: u32,
    pub n_blocks_alone: u32,
    pub bytes_alone: u64,
}

impl Checkpoint {
    pub(crate) fn add(&mut self, held: &Held) {
        self.state_bytes += held.state_bytes;
        self.n_blocks += held.n_blocks;
        self.n_blocks_alone += held.n_blocks_alone;
        self.bytes_alone += held.bytes_alone;
    }
}
