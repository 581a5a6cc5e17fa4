//! Paged cells: what KV caches and cross-attention KV have in common.

use super::block::BlockPool;
use super::bytes::BlockBytes;
use super::layer::{Layer, layers};
use super::table::{BlockTable, SPAN, tables};
use super::view::{Attention, Cell, Store, Visible};
use super::window::WindowCells;
use crate::error::Error;
use crate::external::{Change, Home};
use crate::ids::SeqId;
use crate::layer::{AttentionLayer, Retained, Sees};
use crate::params::{Params, Sizes};
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// Block pool of a cache, the bytes of the blocks, and the block table of every sequence.
///
/// A block has the same number in the pool and in the storage. Sequences share blocks by reference,
/// and the pool counts the users.
pub(crate) struct PagedCells {
    /// Cells that the cache retains.
    pub retained: Retained,
    /// Windowed retention: the cells of checkpoints. `None` unless a window is retained.
    pub window: Option<WindowCells>,
    /// Block pool.
    pub pool: BlockPool,
    /// Block table of each sequence.
    pub tables: Vec<BlockTable>,
    /// Layers of the cache.
    pub layers: Vec<Layer>,
    /// Bytes of the blocks of all layers.
    pub bytes: BlockBytes,
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
    /// Make the cells of layers that retain these cells.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(
        retained: Retained,
        specs: &[AttentionLayer],
        params: &Params,
        sizes: &Sizes,
        home: Home,
    ) -> Result<PagedCells, Error> {
        let Params { n_ctx, n_batch, n_seq_max, .. } = *params;
        let n_blocks = params.n_blocks(retained, sizes);
        let mut window = None;
        let (n_ctx, table_cells) = match retained {
            Retained::All => (n_ctx, n_ctx),
            Retained::Window(kept) => {
                window = Some(WindowCells::new(kept, params, sizes, n_blocks)?);
                // A sequence has at most these cells, however long it becomes.
                (u32::MAX, WindowCells::n_cells(kept, params))
            }
            Retained::Batch { .. } => (n_batch, n_batch),
            Retained::EncoderOutput => (n_ctx, n_batch),
        };
        let table_room = (table_cells as usize).div_ceil(BLOCK_CELLS) + SPAN;
        let layers = self::layers(specs, params);
        Ok(PagedCells {
            retained,
            window,
            bytes: BlockBytes::new(&layers, n_blocks, home)?,
            layers,
            pool: BlockPool::new(n_blocks)?,
            tables: tables(n_seq_max, table_room)?,
            n_ctx,
            table_room,
            placed: reserve::with_room(n_batch as usize)?,
            listed: (home != Home::Here).then(Vec::new),
        })
    }

    /// Return the keys and values of a layer, of which each token sees the slots in `visible`.
    pub fn attention<'a>(&'a self, layer: usize, visible: &'a [Visible]) -> Option<Attention<'a>> {
        let layer = self.layers.get(layer)?;
        let (layout, blocks) = (layer.layout, self.bytes.of(layer));
        Some(Attention { layout, blocks, tables: &self.tables, visible, pool: &self.pool })
    }

    /// Return the cells in which tokens `range` of the split batch store their keys and values.
    pub fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let layer = self.layers.get(layer)?;
        let cells = self.placed.get(tokens)?;
        Some(Store { layout: layer.layout, blocks: self.bytes.of_mut(layer), cells })
    }

    /// Return what a layer of the cache sees.
    pub fn sees(&self, layer: &Layer) -> Sees {
        match self.retained {
            Retained::EncoderOutput => Sees::EncoderOutput,
            _ => layer.window.map_or(Sees::All, Sees::Window),
        }
    }

    /// Return the block table of `seq`.
    pub fn table(&self, seq: SeqId) -> &BlockTable {
        &self.tables[seq.index()]
    }

    /// Return the cells of a checkpoint, if the cache retains cells for checkpoints.
    pub fn held_for(&self, checkpoint: u32) -> Option<&BlockTable> {
        self.window.as_ref()?.held.get(checkpoint as usize)
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

    /// Give a new checkpoint imported cells; the pool counts the table as a user already.
    pub fn give_checkpoint(&mut self, checkpoint: u32, table: BlockTable) {
        let Self { window: Some(window), pool, .. } = self else { return };
        window.change_held(checkpoint, |held| core::mem::replace(held, table).clear(pool));
    }
}

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl PagedCells {
    /// Check that tables, blocks and plan add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        let held = self.window.iter().flat_map(|window| &window.held);
        let tables = self.tables.iter().chain(held);
        tables.clone().try_for_each(|table| table.audit(&self.pool))?;
        if let Some(window) = &self.window {
            window.charges.iter().try_for_each(|charges| charges.audit(&window.held))?;
        }
        self.pool.audit(tables.flat_map(|table| table.touched(0..u32::MAX).map(|t| t.1)))?;
        if self.placed.is_empty() { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
