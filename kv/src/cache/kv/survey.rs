//! Description of the blocks of a sequence.

use super::KvCache;
use crate::cache::table::BlockTable;
use crate::ids::SeqId;
use crate::survey::{Checkpoint, Extent, Layers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Return the blocks of a table.
fn blocks(table: &BlockTable) -> impl Iterator<Item = u32> + '_ {
    table.touched(0..u32::MAX).map(|(_, block, _)| block)
}

impl KvCache {
    /// Describe the blocks of `seq`, and add those that each numbered checkpoint retains.
    pub fn survey(&self, seq: SeqId, checkpoints: &mut [(u32, Checkpoint)]) -> Layers {
        let mut layers = Layers::new(self.cells.retained.kind(), self.cells.layers.len());
        if !self.keeps() {
            return layers;
        }
        layers.block_bytes = self.cells.layers.iter().map(|layer| layer.layout.block_bytes() as u64).sum();
        layers.window = self.cells.window.as_ref().map(|window| window.window);
        layers.margin = self.cells.window.as_ref().map_or(0, |window| window.margin);
        layers.extents = self.extents(seq);
        let mut held = BTreeSet::new();
        for (id, checkpoint) in checkpoints {
            let Some(table) = self.cells.held_for(*id) else { continue };
            let is_alone = |block: &u32| self.cells.pool.refs(*block) == 1;
            let n_alone = blocks(table).filter(is_alone).count() as u32;
            held.extend(blocks(table));
            checkpoint.n_blocks += blocks(table).count() as u32;
            checkpoint.n_blocks_alone += n_alone;
            checkpoint.bytes_alone += u64::from(n_alone) * layers.block_bytes;
        }
        let own: BTreeSet<u32> = blocks(self.table(seq)).collect();
        layers.held_bytes = held.difference(&own).count() as u64 * layers.block_bytes;
        layers
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
