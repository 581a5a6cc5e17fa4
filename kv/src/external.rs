//! Cells and states whose bytes live outside of the memory: on a GPU, or in an engine's own
//! allocator.
//!
//! A memory made by [`Memory::without_storage`](crate::Memory::without_storage) does the
//! bookkeeping and stores no bytes. It tells how many blocks and states there are
//! ([`StorageShape`]), where each token is stored ([`Store::cells`](crate::Store)) and what each
//! token sees ([`Attention::table`](crate::Attention::table)). It also lists every change that it
//! makes to bytes which are stored already:
//!
//! | when | what changes | listed by |
//! |---|---|---|
//! | a ubatch begins | shared blocks are copied | [`Ubatch::copies`], [`Plan::copies`] |
//! | states are stepped | states are copied | [`Ubatch::state_segments`], [`Plan::copies`] |
//! | `seq_add`, `seq_div` | shared blocks are copied, keys K-shifted | [`Memory::take_changes`] |
//! | sequences are imported | blocks, states and journals are filled | [`Import::placement`] |
//!
//! [`Ubatch::copies`]: crate::Ubatch::copies
//! [`Ubatch::state_segments`]: crate::Ubatch::state_segments
//! [`Plan::copies`]: crate::Plan::copies
//! [`Memory::take_changes`]: crate::Memory::take_changes
//! [`Import::placement`]: crate::Import::placement
//!
//! Blocks are copied before a sequence appends to a block with other users. States are copied
//! before they are stepped, for a ubatch as for the replay of a rollback.
//!
//! Everything else changes tables and counts alone: forks, removals, rollbacks without a replay,
//! blocks that leave a window, a plan that is dropped. An engine that makes the listed changes in
//! order, and stores what ubatches tell it to store, holds the bytes that the memory describes.

use crate::kind::Kind;
use alloc::vec::Vec;
use core::ops::Range;

/// Location of a memory's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Storage in the memory itself, which allocates it.
    Here,
    /// Storage elsewhere, which follows the listed changes.
    Elsewhere,
    /// Both, for tests that compare them.
    #[cfg(any(test, feature = "testing"))]
    Both,
}

impl Home {
    /// Return `len`, or 0 if the bytes are elsewhere.
    pub fn len(self, len: u64) -> u64 {
        if self == Home::Elsewhere { 0 } else { len }
    }
}

/// Copy of cells from one block of a cache to another, in each layer of the cache.
///
/// The memory makes one where a sequence appends to, or moves, cells of a block that others use too
/// (copy on write).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellCopy {
    /// Cache, an index into [`StorageShape::caches`].
    pub cache: u32,
    /// Block to copy from. It keeps its cells.
    pub from: u32,
    /// Block to copy to, which has no other user.
    pub to: u32,
    /// Cells to copy: bit `i` for cell `i`. Copying all 32 is harmless.
    pub cells: u32,
}

/// K-shift: rotation of keys to new positions, in each layer of a cache whose keys carry a
/// rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyShift {
    /// Cache, an index into [`StorageShape::caches`].
    pub cache: u32,
    /// Block of the cells.
    pub block: u32,
    /// Cells whose keys rotate: bit `i` for cell `i`.
    pub cells: u32,
    /// Number of positions to rotate by; negative for a move to the front.
    pub delta: i32,
}

/// Copy of a recurrent state, in each recurrent layer.
///
/// A layer makes it after it has computed the tokens before `token`, and copies all of its state
/// tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCopy {
    /// Slot to copy from; `None` for the state of an empty sequence, all zeros.
    pub from: Option<u32>,
    /// Slot to copy to.
    pub to: u32,
    /// Token of the ubatch before which the copy is made. It may copy a state that an earlier token
    /// of this ubatch left.
    pub token: u32,
}

/// Change that an operation makes to stored cells.
///
/// An engine that leaves one out holds wrong data, so this enum is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Copy of cells.
    CopyCells(CellCopy),
    /// K-shift of cells.
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

/// Copy that a plan makes, with the ubatch that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedCopy {
    /// Ubatch before which it is made, after all earlier ubatches are computed.
    pub ubatch: u32,
    /// Copy to make.
    pub copy: PlanCopy,
}

/// Copy of cells or of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanCopy {
    /// Copy of cells, made before anything of the ubatch is computed.
    Cells(CellCopy),
    /// Copy of a recurrent state, made before the token that it names.
    State(StateCopy),
}

/// Storage of cells and states outside of a memory.
///
/// An engine implements it for its buffers and passes every listed change to it, in order.
///
/// # Example
/// ```
/// use backstitch_kv::external::{CellCopy, KeyShift, StateCopy, Storage};
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
    /// Reason for which a change cannot be made.
    type Error;

    /// Copy cells from one block to another, in all layers of the cache.
    ///
    /// # Errors
    /// `Self::Error` if the storage cannot make the change.
    fn copy_cells(&mut self, copy: CellCopy) -> Result<(), Self::Error>;

    /// Rotate keys to a new position, in all layers of the cache whose keys carry a rotation.
    ///
    /// # Errors
    /// `Self::Error` if the storage cannot make the change.
    fn shift_keys(&mut self, shift: KeyShift) -> Result<(), Self::Error>;

    /// Copy a recurrent state of one layer.
    ///
    /// # Errors
    /// `Self::Error` if the storage cannot make the change.
    fn copy_state(&mut self, layer: usize, copy: StateCopy) -> Result<(), Self::Error>;

    /// Make a change that an operation made.
    ///
    /// # Errors
    /// `Self::Error` if the storage cannot make the change.
    fn follow(&mut self, change: Change) -> Result<(), Self::Error> {
        match change {
            Change::CopyCells(copy) => self.copy_cells(copy),
            Change::ShiftKeys(shift) => self.shift_keys(shift),
        }
    }
}

/// Numbers of the blocks, states and journal rows that a memory keeps track of.
///
/// An engine allocates its buffers by it once, when the memory is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageShape {
    /// Caches with cells; the layers of one cache share block numbers.
    pub caches: Vec<CacheShape>,
    /// Slots of recurrent states.
    pub n_states: u32,
    /// Rows of the journal of each state tensor.
    pub n_rows: u32,
}

/// Shape of one cache: layers that use the same block numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheShape {
    /// Kind of the cache.
    pub kind: Kind,
    /// Layers of the model that store cells in it, ascending. Layers that share another layer's
    /// cells are left out.
    pub layers: Vec<u32>,
    /// Blocks of 32 cells in each of these layers.
    pub n_blocks: u32,
}

/// Placement of a [`Snapshot`](crate::snapshot::Snapshot) in a memory: where its blocks, states and
/// journals go.
///
/// An import makes it; an engine copies the snapshot's bytes to these places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// Cache of each group of the snapshot's shape, an index into [`StorageShape::caches`].
    pub caches: Vec<u32>,
    /// For each group, the block of the cache for each of its blocks; `None` if the import leaves
    /// the block out.
    pub blocks: Vec<Vec<Option<u32>>>,
    /// Slot of each state of the snapshot; `None` if the import leaves it out.
    pub states: Vec<Option<u32>>,
    /// Rows of each journal of the snapshot: the first rows, as many as are imported; `None` if
    /// there are none.
    pub journals: Vec<Option<Range<u32>>>,
}
