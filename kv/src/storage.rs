//! Cells and states whose bytes live elsewhere: on a GPU, in an engine's own allocator.
//!
//! A memory made by [`Hybrid::without_storage`](crate::Hybrid::without_storage) keeps the books and no bytes.
//! It says how many blocks and states there are ([`StorageShape`]), where each token is stored
//! ([`Store::cells`](crate::Store)) and what each token sees ([`Attention::table`](crate::Attention::table)),
//! and it lists every change that it makes to bytes which are stored already:
//!
//! | when | what changes | listed by |
//! |---|---|---|
//! | a ubatch begins | shared blocks are copied before a sequence appends to them | [`Ubatch::copies`](crate::Ubatch::copies), [`Plan::copies`](crate::Plan::copies) |
//! | a recurrent layer computes a ubatch, or replays one for a rollback | states are copied before they are stepped | [`Ubatch::state_runs`](crate::Ubatch::state_runs), [`Plan::copies`](crate::Plan::copies) |
//! | `seq_add`, `seq_div` | shared blocks are copied, keys turn to their new positions | [`Hybrid::take_changes`](crate::Hybrid::take_changes) |
//! | sequences are restored | blocks, states and journals are filled | [`Staged::placement`](crate::Staged::placement) |
//!
//! All else changes tables and counts alone: forks, removals, rollbacks without a replay, blocks that leave a
//! window, a plan that is dropped. An engine that makes the listed changes in their order, and stores what
//! ubatches tell it to, holds what the memory says.

use crate::memory::Kind;
use alloc::vec::Vec;
use core::ops::Range;

/// The place of a memory's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// The memory allocates them.
    pub own: bool,
    /// Changes by operations are listed for somebody else.
    pub listed: bool,
}

impl Home {
    pub const HERE: Home = Home { own: true, listed: false };
    pub const ELSEWHERE: Home = Home { own: false, listed: true };

    /// `len`, or nothing where the bytes are elsewhere.
    pub fn len(self, len: u64) -> u64 {
        if self.own { len } else { 0 }
    }
}

/// A copy of cells from one block of a cache to another, in each layer of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CellCopy {
    /// The cache, an index into [`StorageShape::caches`].
    pub cache: u32,
    /// The block to copy from. It keeps its cells.
    pub from: u32,
    /// The block to copy to, which nobody else uses.
    pub to: u32,
    /// The cells to copy: bit `i` for cell `i`. Copying all 32 does no harm.
    pub cells: u32,
}

impl CellCopy {
    /// A copy of `cells` of block `from` of a cache to block `to`, as a memory tells it: for tests of an engine.
    pub fn new(cache: u32, from: u32, to: u32, cells: u32) -> Self {
        CellCopy { cache, from, to, cells }
    }
}

/// A rotation of keys to new positions, in each layer of a cache whose keys carry a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyShift {
    /// The cache, an index into [`StorageShape::caches`].
    pub cache: u32,
    /// The block.
    pub block: u32,
    /// The cells whose keys turn: bit `i` for cell `i`.
    pub cells: u32,
    /// By how many positions.
    pub delta: i32,
}

impl KeyShift {
    /// A rotation of the keys of `cells` of a block by `delta` positions, as a memory tells it: for tests of an
    /// engine.
    pub fn new(cache: u32, block: u32, cells: u32, delta: i32) -> Self {
        KeyShift { cache, block, cells, delta }
    }
}

/// A copy of a recurrent state. Each recurrent layer makes it when it has computed the tokens before `token`,
/// and copies all of its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateCopy {
    /// The slot to copy from; `None`: the state of an empty sequence, all zeros.
    pub from: Option<u32>,
    /// The slot to copy to.
    pub to: u32,
    /// The token of the ubatch before which it is made. It may copy what an earlier token of the same ubatch
    /// left.
    pub token: u32,
}

impl StateCopy {
    /// A copy of the state in slot `from` to slot `to` before `token`, as a memory tells it: for tests of an
    /// engine.
    pub fn new(from: Option<u32>, to: u32, token: u32) -> Self {
        StateCopy { from, to, token }
    }
}

/// A change that an operation makes to cells. An engine that leaves one out holds wrong data, so this enum is
/// exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Cells are copied.
    CopyCells(CellCopy),
    /// Keys turn.
    ShiftKeys(KeyShift),
}

impl Change {
    /// Return the change in another cache.
    pub(crate) fn in_cache(self, cache: u32) -> Change {
        match self {
            Change::CopyCells(copy) => Change::CopyCells(CellCopy { cache, ..copy }),
            Change::ShiftKeys(shift) => Change::ShiftKeys(KeyShift { cache, ..shift }),
        }
    }
}

/// A copy that a plan makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedCopy {
    /// The ubatch for which it is made, after all ubatches before that are computed.
    pub ubatch: u32,
    /// The copy.
    pub copy: PlanCopy,
}

/// A copy that a plan makes of cells or of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanCopy {
    /// Cells, before anything of the ubatch is computed.
    Cells(CellCopy),
    /// A recurrent state, before the token that the copy names.
    State(StateCopy),
}

/// Bytes of cells and states that live outside of a memory.
///
/// # Example
/// ```
/// use backstitch_kv::storage::{CellCopy, KeyShift, StateCopy, Storage};
///
/// /// One layer, one number a cell.
/// struct Numbers(Vec<[f32; 32]>);
///
/// impl Storage for Numbers {
///     type Error = &'static str;
///
///     fn copy_cells(&mut self, copy: CellCopy) -> Result<(), Self::Error> {
///         let from = *self.0.get(copy.from as usize).ok_or("no such block")?;
///         *self.0.get_mut(copy.to as usize).ok_or("no such block")? = from;
///         Ok(())
///     }
///
///     fn shift_keys(&mut self, _: KeyShift) -> Result<(), Self::Error> {
///         Err("these keys hold no position")
///     }
///
///     fn copy_state(&mut self, _layer: usize, _: StateCopy) -> Result<(), Self::Error> {
///         Err("there are no states")
///     }
/// }
/// # let _ = Numbers(vec![[0.0; 32]]);
/// ```
pub trait Storage {
    /// Why a change cannot be made.
    type Error;

    /// Copies cells from one block to another, in all layers of the cache.
    ///
    /// # Errors
    /// Those of the storage.
    fn copy_cells(&mut self, copy: CellCopy) -> Result<(), Self::Error>;

    /// Turns keys to a new position, in all layers of the cache whose keys carry one.
    ///
    /// # Errors
    /// Those of the storage.
    fn shift_keys(&mut self, shift: KeyShift) -> Result<(), Self::Error>;

    /// Copies a recurrent state of one layer.
    ///
    /// # Errors
    /// Those of the storage.
    fn copy_state(&mut self, layer: usize, copy: StateCopy) -> Result<(), Self::Error>;

    /// Makes a change that an operation made.
    ///
    /// # Errors
    /// Those of the storage.
    fn follow(&mut self, change: Change) -> Result<(), Self::Error> {
        match change {
            Change::CopyCells(copy) => self.copy_cells(copy),
            Change::ShiftKeys(shift) => self.shift_keys(shift),
        }
    }
}

/// The blocks, states and journal rows that a memory keeps the books of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageShape {
    /// The caches, each of the layers that share its blocks.
    pub caches: Vec<CacheShape>,
    /// Slots of recurrent states.
    pub n_states: u32,
    /// Rows of the journal of each recurrence.
    pub n_rows: u32,
}

/// Layers that use the same block numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheShape {
    /// The kind of memory that the cache is.
    pub kind: Kind,
    /// The layers of the model that store cells in it, ascending. Layers that share another's cells are not
    /// among them.
    pub layers: Vec<u32>,
    /// Blocks of 32 cells in each of these layers.
    pub n_blocks: u32,
}

/// The places of the blocks, states and journals of an [`Image`](crate::image::Image) in a memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// For each group of the image's shape, its cache, an index into [`StorageShape::caches`].
    pub caches: Vec<u32>,
    /// For each group, for each of its blocks, the block of the cache; `None`: not kept.
    pub blocks: Vec<Vec<Option<u32>>>,
    /// For each state of the image, its slot; `None`: not kept.
    pub states: Vec<Option<u32>>,
    /// For each journal of the image, its rows: the first of the journal's, as many as are kept; `None`: not
    /// kept.
    pub journals: Vec<Option<Range<u32>>>,
}
