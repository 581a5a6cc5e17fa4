//! Description of the blocks of a sequence.

use super::KvCache;
use super::window::WindowCells;
use crate::cache::block::BlockPool;
use crate::cache::table::BlockTable;
use crate::ids::SeqId;
use crate::survey::{Extent, Held, Layers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Return the blocks of a table.
fn blocks(table: &BlockTable) -> impl Iterator<Item = u32> + '_ {
    table.touched(0..u32::MAX).map(|(_, block, _)| block)
}

impl KvCache {
    /// Describe the blocks of `seq`, and those that each checkpoint retains.
    pub fn survey(&self, seq: SeqId, checkpoints: &[u32]) -> (Layers, Vec<Held>) {
        let mut layers = Layers::new(self.kind(), self.cells.layers.len());
        layers.block_bytes = self.cells.layers.iter().map(|layer| layer.layout.block_bytes() as u64).sum();
        layers.window = self.window.as_ref().map(|window| window.window);
        layers.margin = self.window.as_ref().map_or(0, |window| window.margin);
        layers.extents = self.extents(seq);
        let kept: Vec<Option<&BlockTable>> = checkpoints.iter().map(|&id| self.kept_for(id)).collect();
        let own: BTreeSet<u32> = blocks(self.table(seq)).collect();
        let held: BTreeSet<u32> = kept.iter().flatten().flat_map(|table| blocks(table)).collect();
        layers.held_bytes = held.difference(&own).count() as u64 * layers.block_bytes;
        let held =
            kept.iter().map(|table| held_blocks(*table, &self.cells.pool, layers.block_bytes)).collect();
        (layers, held)
    }

    /// Return the table of a checkpoint, if the cache is windowed.
    fn kept_for(&self, checkpoint: u32) -> Option<&BlockTable> {
        self.window.as_ref().and_then(|window| WindowCells::held(window).nth(checkpoint as usize))
    }

    /// Describe each block of `seq`.
    fn extents(&self, seq: SeqId) -> Vec<Extent> {
        let mut sequences: BTreeMap<u32, u32> = BTreeMap::new();
        for block in self.cells.tables.iter().flat_map(blocks) {
            *sequences.entry(block).or_default() += 1;
        }
        let extent = |(_, block, live): (usize, u32, u32)| {
            let pos = self.cells.pool.pos(block);
            Extent {
                block,
                n_cells: live.count_ones(),
                // `touched` returns entries with live cells only, so both cells exist.
                first: pos[live.trailing_zeros() as usize],
                last: pos[live.ilog2() as usize],
                users: self.cells.pool.refs(block),
                sequences: sequences.get(&block).copied().unwrap_or(0),
            }
        };
        self.table(seq).touched(0..u32::MAX).map(extent).collect()
    }
}

/// Describe the blocks that a checkpoint retains.
fn held_blocks(table: Option<&BlockTable>, pool: &BlockPool, block_bytes: u64) -> Held {
    let Some(table) = table else { return Held::default() };
    let n_blocks_alone = blocks(table).filter(|&block| pool.refs(block) == 1).count() as u32;
    let bytes_alone = u64::from(n_blocks_alone) * block_bytes;
    Held { state_bytes: 0, n_blocks: blocks(table).count() as u32, n_blocks_alone, bytes_alone }
}
