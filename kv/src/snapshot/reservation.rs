//! The reservation of an import, until it is committed or dropped.

use crate::cache::{Caches, CurrentState, HeldState, ImportedCells};
use crate::external::Placement;
use crate::ids::SeqId;
use crate::rollback::{CheckpointList, Checkpoints};
use alloc::vec::Vec;

/// Reserved blocks of one cache, and the block tables to commit.
#[derive(Debug, Default)]
pub(super) struct CacheReservation {
    /// Index of the cache.
    pub cache: usize,
    /// Reserved blocks.
    pub taken: Vec<u32>,
    pub sequences: Vec<(SeqId, ImportedCells)>,
    pub checkpoints: Vec<(u32, ImportedCells)>,
}

/// Blocks, state slots and checkpoints that an import has reserved and nothing uses yet.
///
/// It lies in [`Memory`](crate::Memory), not in the [`Import`](super::import::Import), so that the
/// next change of the memory frees it if the import is leaked.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    pub(super) caches: Vec<CacheReservation>,
    /// Reserved state slots.
    pub(super) slots: Vec<u32>,
    pub(super) states: Vec<(SeqId, Option<CurrentState>)>,
    pub(super) held: Vec<(u32, HeldState)>,
    /// Reserved checkpoints.
    pub(super) checkpoints: Vec<u32>,
    pub(super) lists: Vec<(SeqId, CheckpointList)>,
    /// Locations of the above, for an engine that stores the bytes.
    pub(super) placement: Placement,
}

impl Reservation {
    /// Begin the reservation of a cache.
    pub(super) fn cache(&mut self, cache: usize) -> &mut CacheReservation {
        let i = self.caches.len();
        self.caches.push(CacheReservation { cache, ..CacheReservation::default() });
        &mut self.caches[i]
    }

    /// Replace the former content of the sequences with the reserved one; return the number of
    /// checkpoints that the budget does not allow beside those of the other sequences.
    pub(super) fn give(self, caches: &mut Caches, checkpoints: &mut Checkpoints) -> u32 {
        for CacheReservation { cache, sequences, checkpoints, .. } in self.caches {
            sequences.into_iter().for_each(|(seq, cells)| caches.give_cells(cache, seq, cells));
            checkpoints.into_iter().for_each(|(id, cells)| caches.give_checkpoint_cells(cache, id, cells));
        }
        if let Some(states) = caches.states_mut() {
            self.states.into_iter().for_each(|(seq, state)| states.give(seq, state));
            self.held.into_iter().for_each(|(id, held)| states.give_checkpoint(id, held));
        }
        for (seq, list) in self.lists {
            checkpoints.give(seq, list, caches);
        }
        checkpoints.settle(caches);
        self.checkpoints.iter().filter(|&&id| !checkpoints.is_in_use(id)).count() as u32
    }

    /// Free everything that was reserved.
    pub(crate) fn give_back(self, caches: &mut Caches, checkpoints: &mut Checkpoints) {
        for CacheReservation { cache, taken, .. } in &self.caches {
            if let Some(cells) = caches.cells_mut(*cache) {
                taken.iter().for_each(|&block| cells.pool.give_back(block));
            }
        }
        if let Some(states) = caches.states_mut() {
            self.slots.iter().for_each(|&slot| states.give_back(slot));
        }
        self.checkpoints.iter().for_each(|&id| checkpoints.abandon(id));
    }
}
