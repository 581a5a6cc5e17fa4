//! Snapshots: sequences as plain data, apart from any memory.
//!
//! A [`Snapshot`] describes blocks of cells, states and journals, and how sequences and checkpoints
//! are made of them. Sharing stays visible: two forks name the same blocks. The bytes are separate:
//! a [`Content`] shows them, and a [`Source`] writes them into a memory and checks them on the way.
//!
//! [`Memory::export`](crate::Memory::export) makes a snapshot of live sequences, and
//! [`Memory::import`](crate::Memory::import) puts one into a memory. State files
//! ([`crate::storage`]) store snapshots; [`Owned`] holds one with its bytes in RAM.
//!
//! A [`Shape`] describes layers in *groups*: layers that cache cells and see the same window. A
//! memory may keep several groups in one cache, depending on its size. A snapshot never does, and
//! therefore fits memories of other sizes.
//!
//! # Example
//! ```
//! use backstitch_kv::snapshot::Owned;
//! use backstitch_kv::{AttentionLayer, AttentionSpec, Batch, LayerSpec, Memory, Params};
//! use backstitch_kv::{Pos, SeqId, Token, Wanted};
//!
//! let layer = AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 4, ..AttentionLayer::default() };
//! let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
//! let mut small = Memory::new(&layers, &Params::default().n_ctx(64).n_batch(64))?;
//! let mut batch = Batch::new();
//! batch.extend(SeqId(0), Pos(0), &[Token(5); 40], Wanted::None)?;
//! let mut plan = small.prepare(&batch, 64)?;
//! while plan.next_ubatch().is_some() {} // a model computes keys and values here
//! plan.commit()?;
//!
//! let owned = Owned::copy(&small.export(&[SeqId(0)])?);
//! assert_eq!(owned.snapshot.blocks[0].len(), 2); // 40 cells in blocks of 32
//!
//! let mut large = Memory::new(&layers, &Params::default().n_ctx(512).n_batch(64))?;
//! large.import(&owned.snapshot, &owned, &[SeqId(0)], false)?.commit();
//! assert_eq!(large.seq_pos_max(SeqId(0)), Some(Pos(39)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
pub(crate) mod export;
pub(crate) mod import;
mod owned;
pub(crate) mod reservation;
mod resume;

use crate::cache::table::bits;
use crate::ids::Pos;
pub use crate::layer::Sees;
use crate::layer::StateTensor;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, CellLayout, CellType};

pub use owned::Owned;
pub use resume::Resume;

/// The layers of a snapshot or a memory, as far as both have to agree on them.
///
/// [`Memory::shape`](crate::Memory::shape) makes it. Groups have distinct windows, and layers
/// ascend in each list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Layers that cache keys and values, one group per kind of window.
    pub groups: Vec<Group>,
    /// Layers with a recurrent state.
    pub recurrent: Vec<StateLayer>,
}

/// Layers that cache cells and see the same tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Tokens that the layers see: all, those of a window, or the encoder output.
    pub sees: Sees,
    /// Element type of keys.
    pub k_type: CellType,
    /// Element type of values.
    pub v_type: CellType,
    /// The layers, ascending.
    pub layers: Vec<CellLayer>,
}

/// Sizes of the cells of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayer {
    /// The layer of the model, counted from 0.
    pub layer: u32,
    /// Number of heads of K and V.
    pub n_head_kv: u32,
    /// Elements of a key, per head.
    pub d_k: u32,
    /// Elements of a value, per head.
    pub d_v: u32,
}

/// State tensors of one recurrent layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLayer {
    /// The layer of the model, counted from 0.
    pub layer: u32,
    /// State tensors; sizes are numbers of f32.
    pub parts: Vec<StateTensor>,
}

impl Group {
    /// Return the memory layout of a block of one of the layers.
    pub fn layout(&self, layer: &CellLayer) -> CellLayout {
        CellLayout {
            n_head_kv: layer.n_head_kv as usize,
            d_k: layer.d_k as usize,
            d_v: layer.d_v as usize,
            k_type: self.k_type,
            v_type: self.v_type,
        }
    }

    /// Return the memory layout of a block, layer by layer.
    pub fn layouts(&self) -> impl Iterator<Item = CellLayout> + '_ {
        self.layers.iter().map(|layer| self.layout(layer))
    }
}

impl Block {
    /// Add cells, whose positions are in `pos`.
    fn add(&mut self, live: u32, pos: &[Pos; BLOCK_CELLS]) {
        self.live |= live;
        bits(live).for_each(|cell| self.pos[cell as usize] = pos[cell as usize]);
    }
}

impl Shape {
    /// Return the state tensors of all layers, in order of layers.
    pub fn pieces(&self) -> impl Iterator<Item = &StateTensor> + '_ {
        self.recurrent.iter().flat_map(|layer| &layer.parts)
    }
}

/// Sequences as plain data: blocks, states, journals, and the tables that refer to them.
///
/// References are indices into the lists of this type. [`Snapshot::check`] verifies all of them; an
/// import does so first, because a snapshot may come from a damaged file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Layers that the blocks and states belong to.
    pub shape: Shape,
    /// Blocks of cells, per group of the shape.
    pub blocks: Vec<Vec<Block>>,
    /// Number of recurrent states.
    pub n_states: u32,
    /// Number of rows of each journal.
    pub journals: Vec<u32>,
    /// Positions to which sequences can return; several sequences may share one.
    pub checkpoints: Vec<Checkpoint>,
    /// Sequences, in the order in which they were exported.
    pub sequences: Vec<Sequence>,
}

/// A block of 32 cells: which are in use, and their positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Cells that any sequence or checkpoint uses: bit `i` for cell `i`.
    pub live: u32,
    /// Position of each cell; zero for unused cells.
    pub pos: [Pos; BLOCK_CELLS],
}

/// A block table: cells of one group in the order of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Entry `i` holds slots `32 * i ..` of the sequence, or [`BlockEntry::EMPTY`]. `block` is an
    /// index into the blocks of the group.
    pub extents: Vec<BlockEntry>,
    /// Position from which no cell is missing; 0 if the table is complete. A window drops cells
    /// below it.
    pub whole_from: Pos,
    /// First position of the sequence, if cells are missing; 0 otherwise.
    pub start: Pos,
}

/// A recurrent state and the first position that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Index of the state; `None` for the state of an empty sequence.
    pub state: Option<u32>,
    /// First position that the state has seen and that was not removed from the front since.
    pub first: Pos,
}

/// A position to which a sequence can return at once, or from which it re-evaluates.
///
/// The position itself is in each [`CheckpointRef`], because forks share checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// True if a caller pinned it.
    pub pinned: bool,
    /// True if it is a rollback floor: tokens before it are not known, so it stays. There are at
    /// most as many as sequences.
    pub floor: bool,
    /// Index of the journal with the tokens after it.
    pub journal: Option<u32>,
    /// Cells that windows need to continue from here, per group; `None` where the sequence's own
    /// cells suffice.
    pub cells: Vec<Option<Cells>>,
    /// Recurrent state after the last token before the checkpoint.
    pub state: Option<State>,
}

/// An entry in a sequence's list of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Index of the checkpoint.
    pub checkpoint: u32,
    /// Position of the token that follows the checkpoint.
    pub pos: Pos,
    /// Number of journal rows behind the checkpoint that are this sequence's.
    pub n_rows: u32,
}

/// One sequence: a block table per group, the current state, and the checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Block table, per group.
    pub cells: Vec<Cells>,
    /// The recurrent state after the last token.
    pub state: Option<State>,
    /// Last position; meaningful only if there is a state.
    pub last: Pos,
    /// Checkpoints in ascending order of position.
    pub checkpoints: Vec<CheckpointRef>,
}

/// Bytes of a snapshot, for reading.
///
/// [`Export`](crate::Export) shows those of a live memory, [`Owned`] its own, [`Resume`] a subset
/// of another content's.
pub trait Content {
    /// Return the description of the bytes.
    fn snapshot(&self) -> &Snapshot;

    /// Return a block of a group: per layer, 32 cells in the layout of [`CellLayout`]. Unused cells
    /// may contain anything. Empty if the snapshot has no such block.
    fn block(&self, group: usize, block: usize) -> Vec<&[u8]>;

    /// Return a state: its tensors, layer by layer. Empty if the snapshot has no such state.
    fn state(&self, state: usize) -> Vec<&[f32]>;

    /// Return a journal: per state tensor its rows `[n_rows, input]`. Empty if the snapshot has no
    /// such journal.
    fn journal(&self, journal: usize) -> Vec<&[f32]>;
}

/// Bytes of a snapshot, for writing into a memory.
///
/// A source checks the bytes while it writes them. After an error the targets contain anything.
pub trait Source {
    /// Reason for which bytes cannot be read.
    type Error;

    /// Write a block of a group: `layers` has space for 32 cells per layer. Unused cells may
    /// receive anything.
    ///
    /// # Errors
    /// [`Source::Error`] if the bytes cannot be read or are damaged.
    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Self::Error>;

    /// Write a state, tensor by tensor.
    ///
    /// # Errors
    /// [`Source::Error`] if the bytes cannot be read or are damaged.
    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error>;

    /// Write a journal, tensor by tensor, `[n_rows, input]` each.
    ///
    /// # Errors
    /// [`Source::Error`] if the bytes cannot be read or are damaged.
    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error>;
}
