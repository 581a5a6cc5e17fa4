//! Reservation of blocks, state slots and journal rows for an import.

use super::choice::Choice;
use super::fit::Matched;
use crate::cache::block::BlockPool;
use crate::cache::table::BlockTable;
use crate::cache::{CurrentState, HeldState, ImportedCells};
use crate::error::Error;
use crate::ids::SeqId;
use crate::memory::Memory;
use crate::rollback::{Adopted, ListedCheckpoint};
use crate::snapshot::reservation::{CacheReservation, Reservation};
use crate::snapshot::{Block, Cells, CheckpointRef, Snapshot};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;
use core::ops::Range;

/// Locations of a snapshot's parts in the memory; `None` for parts that are left out.
pub(super) struct Reserved {
    /// Block of the cache, per group and block.
    pub blocks: Vec<Vec<Option<u32>>>,
    /// State slot, per state.
    pub slots: Vec<Option<u32>>,
    /// Journal rows, per journal; fewer than in the snapshot if they do not fit.
    pub rows: Vec<Option<Range<u32>>>,
}

impl Memory {
    /// Reserve what was chosen. If the allocator refuses, everything is freed again.
    pub(super) fn reserve_import(
        &mut self,
        snapshot: &Snapshot,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
    ) -> Result<Reserved, Error> {
        self.reservation = Some(Reservation::default());
        let reserved = self.reserve_all(snapshot, seqs, matched, choice);
        if reserved.is_err() {
            self.drop_import();
        }
        reserved
    }

    fn reserve_all(
        &mut self,
        snapshot: &Snapshot,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
    ) -> Result<Reserved, Error> {
        let ids = self.adopt(choice, snapshot)?;
        let mut reserved = Reserved {
            blocks: snapshot.blocks.iter().map(|blocks| vec![None; blocks.len()]).collect(),
            slots: vec![None; snapshot.n_states as usize],
            rows: vec![None; snapshot.journals.len()],
        };
        self.reserve_cells(snapshot, seqs, matched, choice, &ids, &mut reserved)?;
        self.reserve_states(snapshot, seqs, choice, &ids, &mut reserved)?;
        for (kept, &id) in choice.checkpoints.iter().zip(&ids) {
            let journal = snapshot.checkpoints[kept.number].journal.filter(|_| kept.n_rows > 0);
            if let (Some(journal), Some(row)) = (journal, self.checkpoints.first_row(id)) {
                reserved.rows[journal as usize] = Some(row..row + kept.n_rows);
            }
        }
        let mut id_of = vec![None; snapshot.checkpoints.len()];
        choice.checkpoints.iter().zip(&ids).for_each(|(kept, &id)| id_of[kept.number] = Some(id));
        let id_of = |mark: &CheckpointRef| id_of.get(mark.checkpoint as usize).copied().flatten();
        for (marks, &seq) in choice.lists.iter().zip(seqs) {
            let entry = |mark: &CheckpointRef| {
                Some(ListedCheckpoint { id: id_of(mark)?, pos: mark.pos, n_rows: mark.n_rows })
            };
            let entries: Vec<ListedCheckpoint> = marks.iter().filter_map(entry).collect();
            let list = self.checkpoints.list_of(&entries)?;
            if let Some(reservation) = &mut self.reservation {
                reservation.lists.push((seq, list));
            }
        }
        Ok(reserved)
    }

    /// Reserve checkpoints.
    fn adopt(&mut self, choice: &Choice, snapshot: &Snapshot) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(choice.checkpoints.len());
        let mut users = vec![(0, 0); snapshot.checkpoints.len()];
        for mark in choice.lists.iter().flatten() {
            let (refs, readers) = &mut users[mark.checkpoint as usize];
            *refs += 1;
            *readers += u32::from(mark.n_rows > 0);
        }
        for kept in &choice.checkpoints {
            let (refs, readers) = users[kept.number];
            let floor = snapshot.checkpoints[kept.number].floor;
            let adopted = Adopted { refs, readers, pinned: kept.pinned, floor };
            let refused = Error::Full { what: "checkpoints", need: 1, free: 0, seq: SeqId::default() };
            let id = self.checkpoints.adopt(adopted).ok_or(refused)?;
            if let Some(reservation) = &mut self.reservation {
                reservation.checkpoints.push(id);
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// Reserve blocks and make block tables of them, for sequences and for checkpoints.
    fn reserve_cells(
        &mut self,
        snapshot: &Snapshot,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
        ids: &[u32],
        reserved: &mut Reserved,
    ) -> Result<(), Error> {
        for (i, Matched { place, group }) in matched.iter().enumerate() {
            // Groups in one cache share their blocks.
            let twin = matched[..i].iter().find(|other| other.place.cache == place.cache);
            if let Some(twin) = twin {
                reserved.blocks[*group] = reserved.blocks[twin.group].clone();
                continue;
            }
            let Some(cache) = self.caches.cell_cache(place.cache) else { continue };
            let (table_room, checkpoint_room) = (cache.cells.table_room, cache.checkpoint_room());
            let Some(cells) = self.caches.cells_mut(place.cache) else { continue };
            // Recorded first, so that an error from here on frees the blocks.
            let own = self.reservation.get_or_insert_default().cache(place.cache);
            let taken = take_blocks(&mut cells.pool, snapshot, choice, *group, own);
            let numbers = &mut reserved.blocks[*group];
            *numbers = taken;
            for (cells, &seq) in choice.cells[*group].iter().zip(seqs) {
                own.sequences.push((seq, given(cells, numbers, table_room)?));
            }
            for (kept, &id) in choice.checkpoints.iter().zip(ids) {
                if let Some(cells) = kept.cells[*group].as_ref() {
                    own.checkpoints.push((id, given(cells, numbers, checkpoint_room)?));
                }
            }
        }
        Ok(())
    }

    /// Reserve state slots for current states and for those of checkpoints.
    fn reserve_states(
        &mut self,
        snapshot: &Snapshot,
        seqs: &[SeqId],
        choice: &Choice,
        ids: &[u32],
        reserved: &mut Reserved,
    ) -> Result<(), Error> {
        let Some(states) = self.caches.states_mut() else { return Ok(()) };
        let reservation = self.reservation.get_or_insert_default();
        for (state, users) in choice.state_users(snapshot).into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let free = states.n_free() as u64;
            let refused = Error::Full { what: "states", need: 1, free, seq: SeqId::default() };
            let slot = states.take(users).ok_or(refused)?;
            reservation.slots.push(slot);
            reserved.slots[state] = Some(slot);
        }
        let slot = |state: Option<u32>| state.and_then(|state| reserved.slots[state as usize]);
        for (sequence, &seq) in snapshot.sequences.iter().zip(seqs) {
            let state = sequence.state.and_then(|state| {
                Some(CurrentState { slot: slot(state.state)?, first: state.first, last: sequence.last })
            });
            reservation.states.push((seq, state));
        }
        for (kept, &id) in choice.checkpoints.iter().zip(ids) {
            if let Some(state) = snapshot.checkpoints[kept.number].state {
                reservation.held.push((id, HeldState { slot: slot(state.state), first: state.first }));
            }
        }
        Ok(())
    }
}

/// Reserve the blocks of a group and set their positions.
fn take_blocks(
    pool: &mut BlockPool,
    snapshot: &Snapshot,
    choice: &Choice,
    group: usize,
    own: &mut CacheReservation,
) -> Vec<Option<u32>> {
    let blocks = &snapshot.blocks[group];
    let users = choice.users(group, blocks.len());
    let take = |(users, block): (u32, &Block)| {
        if users == 0 {
            return None;
        }
        let taken = pool.take(users)?;
        pool.set_all_pos(taken, &block.pos);
        own.taken.push(taken);
        Some(taken)
    };
    users.into_iter().zip(blocks).map(take).collect()
}

/// Return the block table in terms of the reserved blocks.
fn given(cells: &Cells, blocks: &[Option<u32>], room: usize) -> Result<ImportedCells, Error> {
    let place = |extent: &BlockEntry| match blocks.get(extent.block as usize) {
        Some(Some(block)) if extent.live != 0 => BlockEntry { block: *block, ..*extent },
        _ => BlockEntry::EMPTY,
    };
    let extents: Vec<BlockEntry> = cells.extents.iter().map(place).collect();
    let table = BlockTable::of(&extents, room)?;
    Ok(ImportedCells { table, whole_from: cells.whole_from, start: cells.start })
}
