//! View of the caches that store cells, for exports and imports.
//!
//! Snapshots treat KV caches and cross-attention KV alike: as groups of layers with blocks, tables
//! and windows.

use super::kv::{Gone, KvCache, WindowCells};
use super::paged::PagedCells;
use super::table::BlockTable;
use crate::ids::{Pos, SeqId};
use crate::layer::Sees;

/// Cells of a sequence or of a checkpoint: its block table, and what is missing of it.
pub(crate) type Holding<'a> = (&'a BlockTable, Gone);

/// Cells that an import gives to a sequence or to a checkpoint. The pool counts the table as a user
/// already.
pub(crate) type ImportedCells = (BlockTable, Gone);

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

    /// Return the windowed retention, if old cells are released, so that checkpoints retain cells
    /// of their own.
    pub fn window(&self) -> Option<&'a WindowCells> {
        self.kv?.window.as_ref()
    }

    /// Return the cells of a sequence.
    pub fn held_by(&self, seq: SeqId) -> Holding<'a> {
        let gone = self.window().map_or_else(Gone::default, |window| window.gone[seq.index()]);
        (self.cells.table(seq), gone)
    }

    /// Return the cells of a checkpoint, if the cache retains cells for checkpoints.
    pub fn held_for(&self, checkpoint: u32) -> Option<Holding<'a>> {
        let (table, whole_from) = self.window()?.held_for(checkpoint)?;
        Some((table, Gone { whole_from, start: Pos::ZERO }))
    }
}
