//! Describing the blocks of a sequence.

use super::Unified;
use super::recycle::Recycle;
use crate::block::BlockPool;
use crate::extent::Table;
use crate::ids::SeqId;
use crate::memory::Part;
use crate::survey::{Extent, Held, Layers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The blocks of a table.
fn blocks(table: &Table) -> impl Iterator<Item = u32> + '_ {
    table.touched(0..u32::MAX).map(|(_, block, _)| block)
}

impl Unified {
    pub(in crate::memory) fn n_layer(&self) -> usize {
        self.layers.len()
    }

    pub(super) fn survey_blocks(&self, seq: SeqId, checkpoints: &[u32]) -> (Layers, Vec<Held>) {
        let mut layers = Layers::new(self.kind(), self.n_layer());
        layers.block_bytes = self.layers.iter().map(|layer| layer.layout.block_bytes() as u64).sum();
        layers.window = self.recycle.as_ref().map(|recycle| recycle.window);
        layers.margin = self.recycle.as_ref().map_or(0, |recycle| recycle.margin);
        layers.extents = self.extents(seq);
        let kept: Vec<Option<&Table>> = checkpoints.iter().map(|&id| self.kept_for(id)).collect();
        let own: BTreeSet<u32> = blocks(self.table(seq)).collect();
        let held: BTreeSet<u32> = kept.iter().flatten().flat_map(|table| blocks(table)).collect();
        layers.held_bytes = held.difference(&own).count() as u64 * layers.block_bytes;
        let held = kept.iter().map(|table| held_blocks(*table, &self.pool, layers.block_bytes)).collect();
        (layers, held)
    }

    fn kept_for(&self, checkpoint: u32) -> Option<&Table> {
        self.recycle.as_ref().and_then(|recycle| Recycle::held(recycle).nth(checkpoint as usize))
    }

    fn extents(&self, seq: SeqId) -> Vec<Extent> {
        let mut sequences: BTreeMap<u32, u32> = BTreeMap::new();
        for block in self.tables.iter().flat_map(blocks) {
            *sequences.entry(block).or_default() += 1;
        }
        let extent = |(_, block, live): (usize, u32, u32)| {
            let pos = self.pool.pos(block);
            Extent {
                block,
                n_cells: live.count_ones(),
                // `touched` gives entries with live cells only.
                first: pos[live.trailing_zeros() as usize],
                last: pos[live.ilog2() as usize],
                users: self.pool.refs(block),
                sequences: sequences.get(&block).copied().unwrap_or(0),
            }
        };
        self.table(seq).touched(0..u32::MAX).map(extent).collect()
    }
}

fn held_blocks(table: Option<&Table>, pool: &BlockPool, block_bytes: u64) -> Held {
    let Some(table) = table else { return Held::default() };
    let n_blocks_alone = blocks(table).filter(|&block| pool.refs(block) == 1).count() as u32;
    let bytes_alone = u64::from(n_blocks_alone) * block_bytes;
    Held { state_bytes: 0, n_blocks: blocks(table).count() as u32, n_blocks_alone, bytes_alone }
}
