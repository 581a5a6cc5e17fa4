//! The reservation of an import, until it is committed or dropped.

use crate::cache::{Caches, CurrentState, HeldState, ImportedCells};
use crate::external::Placement;
use crate::ids::SeqId;
use crate::rollback::{CheckpointList, Checkpoints};
use alloc::vec::Vec;

/// Blocks, state slots and checkpoints that an import has reserved and nothing uses yet.
///
/// It lies in [`Memory`](crate::Memory), not in the [`Import`](super::import::Import), so that the
/// next change of the memory frees it if the import is leaked.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    /// Reserved blocks, slots and rows, in the snapshot's order.
    pub(super) placement: Placement,
    /// Reserved blocks, each with its cache.
    pub(super) blocks: Vec<(usize, u32)>,
    /// Block tables of sequences, per cache.
    pub(super) cells: Vec<(usize, SeqId, ImportedCells)>,
    /// Block tables of checkpoints, per cache.
    pub(super) checkpoint_cells: Vec<(usize, u32, ImportedCells)>,
    /// Reserved state slots.
    pub(super) slots: Vec<u32>,
    pub(super) states: Vec<(SeqId, Option<CurrentState>)>,
    pub(super) checkpoint_states: Vec<(u32, HeldState)>,
    /// Reserved checkpoints.
    pub(super) checkpoints: Vec<u32>,
    pub(super) lists: Vec<(SeqId, CheckpointList)>,
}

impl Reservation {
    /// Replace the former content of the sequences with the reserved one; return the number of
    /// checkpoints that the budget does not allow beside those of the other sequences.
    pub(super) fn give(self, caches: &mut Caches, checkpoints: &mut Checkpoints) -> u32 {
        self.cells.into_iter().for_each(|(cache, seq, cells)| caches.give_cells(cache, seq, cells));
        let held = self.checkpoint_cells.into_iter();
        held.for_each(|(cache, id, cells)| caches.give_checkpoint_cells(cache, id, cells));
        if let Some(states) = caches.states_mut() {
            self.states.into_iter().for_each(|(seq, state)| states.give(seq, state));
            self.checkpoint_states.into_iter().for_each(|(id, held)| states.give_checkpoint(id, held));
        }
        for (seq, list) in self.lists {
            checkpoints.give(seq, list, caches);
        }
        checkpoints.settle(caches);
        self.checkpoints.iter().filter(|&&id| !checkpoints.is_in_use(id)).count() as u32
    }

    /// Free everything that was reserved.
    pub(crate) fn give_back(self, caches: &mut Caches, checkpoints: &mut Checkpoints) {
        for (cache, block) in self.blocks {
            if let Some(cells) = caches.cells_mut(cache) {
                cells.pool.give_back(block);
            }
        }
        if let Some(states) = caches.states_mut() {
            self.slots.iter().for_each(|&slot| states.slots.give_back(slot));
        }
        self.checkpoints.iter().for_each(|&id| checkpoints.abandon(id));
    }
}
