//! Description of the checkpoints of a sequence.

use super::checkpoints::{Checkpoints, ListedCheckpoint};
use crate::ids::{Pos, SeqId};
use crate::survey::{Budget, Checkpoint};
use alloc::vec::Vec;

impl Checkpoints {
    /// Describe the checkpoints of a sequence that ends at `end`: their numbers, their purposes,
    /// and the budget.
    pub fn survey(&self, seq: SeqId, end: Pos) -> (Vec<(u32, Checkpoint)>, Budget) {
        let checkpoint = |entry: &ListedCheckpoint| Checkpoint {
            pos: entry.pos,
            is_pinned: self.get(entry.id).pinned,
            is_scheduled: self.is_scheduled(entry.pos, end),
            n_rows: entry.n_rows,
            sequences: self.get(entry.id).refs,
            ..Checkpoint::default()
        };
        let checkpoints = self.list(seq).iter().map(|entry| (entry.id, checkpoint(entry)));
        let n_checkpoints = (self.checkpoints.len() - self.free.len()) as u32;
        let budget = Budget { params: self.params, n_paid: self.sizes.n_paid, n_checkpoints };
        (checkpoints.collect(), budget)
    }
}
