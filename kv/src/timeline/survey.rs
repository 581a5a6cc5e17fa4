//! Describing the checkpoints of a sequence.

use super::Timeline;
use crate::ids::{Pos, SeqId};
use crate::survey::{Budget, Checkpoint};
use alloc::vec::Vec;

impl Timeline {
    /// The checkpoints of a sequence that ends at `end`: their numbers, and what they are for.
    pub fn survey(&self, seq: SeqId, end: Pos) -> (Vec<u32>, Vec<Checkpoint>, Budget) {
        let line = self.line(seq);
        let checkpoints = line.iter().map(|entry| Checkpoint {
            pos: entry.pos,
            is_pinned: self.is_pinned(entry.id),
            is_rung: self.is_rung(entry.pos, end),
            n_rows: entry.n_rows,
            sequences: self.checkpoints[entry.id as usize].refs,
            ..Checkpoint::default()
        });
        let n_checkpoints = (self.checkpoints.len() - self.free.len()) as u32;
        let budget = Budget { params: self.params, n_paid: self.sizes.n_paid, n_checkpoints };
        (line.iter().map(|entry| entry.id).collect(), checkpoints.collect(), budget)
    }
}
