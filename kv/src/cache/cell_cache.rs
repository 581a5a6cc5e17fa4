//! View of the caches that store cells, for exports and imports.
//!
//! Snapshots treat KV caches and cross-attention KV alike: as groups of layers with blocks, tables
//! and windows.

use super::kv::KvCache;
use super::paged::PagedCells;
use super::table::BlockTable;
use crate::ids::{Pos, SeqId};
use crate::layer::Sees;

/// Cells of a sequence or of a checkpoint.
pub(crate) struct Holding<'a> {
    /// Block table.
    pub table: &'a BlockTable,
    /// Position below which cells may have been released.
    pub whole_from: Pos,
    /// First position that the sequence had, if cells were released.
    pub start: Pos,
}

/// Cells that an import gives to a sequence or to a checkpoint. The pool counts the table as a user
/// already.
#[derive(Debug, Default)]
pub(crate) struct ImportedCells {
    /// Block table.
    pub table: BlockTable,
    /// Position below which cells may be missing.
    pub whole_from: Pos,
    /// First position that the sequence had, if cells are missing.
    pub start: Pos,
}

/// View of a cache that stores cells: a KV cache or cross-attention KV.
#[derive(Clone, Copy)]
pub(crate) struct CellCache<'a> {
    /// Paged cells of the cache.
    pub cells: &'a PagedCells,
    /// KV cache; `None` for cross-attention KV.
    kv: Option<&'a KvCache>,
}

impl<'a> CellCache<'a> {
    /// Return the view of a KV cache.
    pub fn kv(cache: &'a KvCache) -> Self {
        CellCache { cells: &cache.cells, kv: Some(cache) }
    }

    /// Return the view of cross-attention KV.
    pub fn cross(cells: &'a PagedCells) -> Self {
        CellCache { cells, kv: None }
    }

    /// Return what the layers of a view see, or `None` if there is no such view.
    pub fn sees(&self, view: usize) -> Option<Sees> {
        match self.kv {
            Some(kv) => Some(kv.views.get(view)?.window.map_or(Sees::All, Sees::Window)),
            None => (view == 0).then_some(Sees::EncoderOutput),
        }
    }

    /// Return the cells of a sequence.
    pub fn held_by(&self, seq: SeqId) -> Holding<'a> {
        let window = self.kv.and_then(|kv| kv.window.as_ref());
        let (whole_from, start) = window.map_or((Pos::ZERO, Pos::ZERO), |window| window.gone(seq));
        Holding { table: self.cells.table(seq), whole_from, start }
    }

    /// Return the cells of a checkpoint, if the cache retains cells for checkpoints.
    pub fn held_for(&self, checkpoint: u32) -> Option<Holding<'a>> {
        let (table, whole_from) = self.kv?.window.as_ref()?.held_for(checkpoint)?;
        Some(Holding { table, whole_from, start: Pos::ZERO })
    }

    /// Return true if old cells are released, so that checkpoints retain cells of their own.
    pub fn is_windowed(&self) -> bool {
        self.kv.is_some_and(|kv| kv.window.is_some())
    }

    /// Return the first position that a checkpoint at `pos` retains.
    pub fn needed_from(&self, pos: Pos) -> Pos {
        let window = self.kv.and_then(|kv| kv.window.as_ref());
        window.map_or(Pos::ZERO, |window| window.needed_from(pos))
    }

    /// Return the first position that a sequence which ends at `end` retains.
    pub fn kept_from(&self, end: Pos) -> Pos {
        let window = self.kv.and_then(|kv| kv.window.as_ref());
        window.map_or(Pos::ZERO, |window| window.kept_from(end))
    }

    /// Return the number of entries for which the table of a checkpoint has room from the start.
    pub fn checkpoint_room(&self) -> usize {
        let window = self.kv.and_then(|kv| kv.window.as_ref());
        window.map_or(0, |window| window.held_room)
    }
}
