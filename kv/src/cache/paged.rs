//! Paged cells: what KV caches and cross-attention KV have in common.

use super::block::BlockPool;
use super::kv::WindowCells;
use super::layer::Layer;
use super::table::{BlockTable, SPAN};
use super::view::{Attention, Cell, Store, Visible};
use crate::error::Error;
use crate::external::{Change, Home};
use crate::ids::SeqId;
use crate::layer::{AttentionLayer, Retained};
use crate::params::Params;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// Block pool of a cache, the storage of its layers, and the block table of every sequence.
///
/// A block has the same number in the pool and in the storage of every layer. Sequences share
/// blocks by reference, and the pool counts the users.
pub(crate) struct PagedCells {
    /// Block pool.
    pub pool: BlockPool,
    /// Block table of each sequence.
    pub tables: Vec<BlockTable>,
    /// Storage of each layer of the cache.
    pub layers: Vec<Layer>,
    /// Most cells of one sequence.
    pub n_ctx: u32,
    /// Entries for which each table has room from the start.
    pub table_room: usize,
    /// Cell of each token of a plan that stores tokens.
    pub placed: Vec<Cell>,
    /// Changes that operations made to cells; `None` unless storage elsewhere must follow them.
    pub listed: Option<Vec<Change>>,
}

impl PagedCells {
    /// Make the cells of layers that retain these cells, each with the number of its view.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new<'l>(
        retained: Retained,
        layers: impl Iterator<Item = (&'l AttentionLayer, usize)>,
        params: &Params,
        n_checkpoints: u32,
        home: Home,
    ) -> Result<PagedCells, Error> {
        let Params { n_ctx, n_batch, n_seq_max, .. } = *params;
        let n_blocks = params.n_blocks(retained, n_checkpoints);
        let (n_ctx, table_cells) = match retained {
            Retained::All => (n_ctx, n_ctx),
            // A sequence has at most these cells, however long it becomes.
            Retained::Window(window) => (u32::MAX, WindowCells::n_cells(window, params)),
            Retained::Batch { .. } => (n_batch, n_batch),
            Retained::EncoderOutput => (n_ctx, n_batch),
        };
        let table_room = (table_cells as usize).div_ceil(BLOCK_CELLS) + SPAN;
        let layers = layers.map(|(spec, view)| Layer::new(spec, params, view, n_blocks, home));
        let mut placed = Vec::new();
        reserve::for_len(&mut placed, n_batch as usize)?;
        Ok(PagedCells {
            layers: layers.collect::<Result<_, _>>()?,
            pool: BlockPool::new(n_blocks)?,
            tables: tables(n_seq_max, table_room)?,
            n_ctx,
            table_room,
            placed,
            listed: (home != Home::Here).then(Vec::new),
        })
    }

    /// Return the keys and values of a layer, of which each token sees the slots in `visible`.
    pub fn attention<'a>(&'a self, layer: usize, visible: &'a [Visible]) -> Option<Attention<'a>> {
        let layer = self.layers.get(layer)?;
        let (layout, storage) = (layer.layout, layer.storage());
        Some(Attention { layout, storage, tables: &self.tables, visible, pool: &self.pool })
    }

    /// Return the cells in which tokens `range` of the split batch store their keys and values.
    pub fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.layers.get_mut(layer)?;
        let cells = self.placed.get(tokens)?;
        Some(Store { layout: layer.layout, storage: layer.storage_mut(), cells })
    }

    /// Return the block table of `seq`.
    pub fn table(&self, seq: SeqId) -> &BlockTable {
        &self.tables[seq.index()]
    }

    /// Return the number of blocks.
    pub fn n_blocks(&self) -> u32 {
        self.pool.len() as u32
    }

    /// Empty the table of `seq`.
    pub fn empty(&mut self, seq: SeqId) {
        self.tables[seq.index()].clear(&mut self.pool);
    }

    /// Replace the table of `seq`; the pool counts the new table as a user already.
    pub fn give(&mut self, seq: SeqId, table: BlockTable) {
        let mut old = core::mem::replace(&mut self.tables[seq.index()], table);
        old.clear(&mut self.pool);
    }

    /// Make `dst` share the cells of `src` in `slots`, in place of its own.
    pub fn share(&mut self, src: SeqId, dst: SeqId, slots: Range<u32>) {
        let mut copy = core::mem::take(&mut self.tables[dst.index()]);
        copy.clear(&mut self.pool);
        copy.share(&mut self.pool, &self.tables[src.index()], slots);
        self.tables[dst.index()] = copy;
    }
}

/// Make `n_seq_max` empty tables with room for `table_room` entries each.
pub(super) fn tables(n_seq_max: u32, table_room: usize) -> Result<Vec<BlockTable>, Error> {
    let mut tables: Vec<BlockTable> = (0..n_seq_max).map(|_| BlockTable::default()).collect();
    tables.iter_mut().try_for_each(|table| table.make_room(table_room))?;
    Ok(tables)
}
