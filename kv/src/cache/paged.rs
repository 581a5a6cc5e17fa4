//! Paged cells: what KV caches and cross-attention KV have in common.

use super::block::BlockPool;
use super::layer::Layer;
use super::table::{BlockTable, SPAN};
use crate::error::Error;
use crate::external::Change;
use crate::external::Home;
use crate::ids::SeqId;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;

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
    /// Changes that operations made to cells; `None` unless storage elsewhere must follow them.
    pub listed: Option<Vec<Change>>,
}

impl PagedCells {
    /// Make the cells of `layers`, with a table of `table_cells` cells for each of `n_seq_max`
    /// sequences.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(
        layers: Vec<Layer>,
        n_blocks: u32,
        n_seq_max: u32,
        (n_ctx, table_cells): (u32, u32),
        home: Home,
    ) -> Result<PagedCells, Error> {
        let table_room = (table_cells as usize).div_ceil(BLOCK_CELLS) + SPAN;
        Ok(PagedCells {
            pool: BlockPool::new(n_blocks)?,
            tables: tables(n_seq_max, table_room)?,
            layers,
            n_ctx,
            table_room,
            listed: home.listed.then(Vec::new),
        })
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
    pub fn share(&mut self, src: SeqId, dst: SeqId, slots: core::ops::Range<u32>) {
        let mut copy = core::mem::take(&mut self.tables[dst.index()]);
        copy.clear(&mut self.pool);
        copy.share(&mut self.pool, &self.tables[src.index()], slots);
        self.tables[dst.index()] = copy;
    }

    /// Return every sequence but `seq`.
    pub fn others(&self, seq: SeqId) -> impl Iterator<Item = SeqId> + use<> {
        (0..self.tables.len() as u32).map(SeqId).filter(move |other| *other != seq)
    }
}

/// Make `n_seq_max` empty tables with room for `table_room` entries each.
pub(super) fn tables(n_seq_max: u32, table_room: usize) -> Result<Vec<BlockTable>, Error> {
    let mut tables: Vec<BlockTable> = (0..n_seq_max).map(|_| BlockTable::default()).collect();
    tables.iter_mut().try_for_each(|table| table.make_room(table_room))?;
    Ok(tables)
}
