//! The reservation of an import, until it is committed or dropped.

use crate::cache::table::BlockTable;
use crate::cache::{Caches, CurrentState, HeldState};
use crate::external::Placement;
use crate::ids::SeqId;
use crate::rollback::{Checkpoints, ListedCheckpoint};
use alloc::vec::Vec;

/// Blocks, state slots and checkpoints that an import has reserved and nothing uses yet.
///
/// It lies in [`Memory`](crate::Memory), not in the [`Import`](super::import::Import), so that the
/// next change of the memory frees it if the import is leaked.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    /// Reserved blocks, slots and rows, in the snapshot's order.
    pub(super) placement: Placement,
    /// Block tables of sequences, per cache.
    pub(super) cells: Vec<(usize, SeqId, BlockTable)>,
    /// Block tables of checkpoints, per cache.
    pub(super) checkpoint_cells: Vec<(usize, u32, BlockTable)>,
    pub(super) states: Vec<(SeqId, Option<CurrentState>)>,
    pub(super) checkpoint_states: Vec<(u32, HeldState)>,
    /// Reserved checkpoints.
    pub(super) checkpoints: Vec<u32>,
    pub(super) lists: Vec<(SeqId, Vec<ListedCheckpoint>)>,
}

impl Reservation {
    /// Replace the former content of the sequences with the reserved one; return the numbers of
    /// pins and of checkpoints that the budget does not allow beside those of the other sequences.
    pub(super) fn give(self, caches: &mut Caches, checkpoints: &mut Checkpoints) -> (u32, u32) {
        for (cache, seq, table) in self.cells {
            if let Some(cells) = caches.cells_mut(cache) {
                cells.give(seq, table);
            }
        }
        for (cache, id, table) in self.checkpoint_cells {
            if let Some(cells) = caches.cells_mut(cache) {
                cells.give_checkpoint(id, table);
            }
        }
        if let Some(states) = &mut caches.states {
            self.states.into_iter().for_each(|(seq, state)| states.give(seq, state));
            self.checkpoint_states.into_iter().for_each(|(id, held)| states.give_checkpoint(id, held));
        }
        for (seq, list) in self.lists {
            checkpoints.give(seq, list, caches);
        }
        let mut n_unpinned = 0;
        for &id in &self.checkpoints {
            let is_unpinned = checkpoints.get(id).pinned && !checkpoints.pay_pin(id, caches);
            n_unpinned += u32::from(is_unpinned);
        }
        checkpoints.keep_to_budget(caches);
        let n_dropped = self.checkpoints.iter().filter(|&&id| checkpoints.get(id).refs == 0).count() as u32;
        (n_unpinned, n_dropped)
    }

    /// Free everything that was reserved.
    pub(crate) fn give_back(self, caches: &mut Caches, checkpoints: &mut Checkpoints) {
        let Placement { caches: numbers, blocks, states, .. } = self.placement;
        for (number, blocks) in numbers.into_iter().zip(blocks) {
            if let Some(cells) = caches.cells_mut(number as usize) {
                // Groups in one cache share their blocks; freeing one again changes nothing.
                blocks.into_iter().flatten().for_each(|block| cells.pool.give_back(block));
            }
        }
        if let Some(own) = &mut caches.states {
            states.into_iter().flatten().for_each(|slot| own.slots.give_back(slot));
        }
        self.checkpoints.iter().for_each(|&id| checkpoints.abandon(id));
    }
}
