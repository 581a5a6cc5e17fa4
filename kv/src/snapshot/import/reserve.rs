//! Reserving blocks, state slots and journal rows for an import.

use super::Request;
use super::choice::Choice;
use crate::cache::table::{BlockTable, Gone};
use crate::cache::{CurrentState, HeldState};
use crate::error::Error;
use crate::external::Placement;
use crate::ids::SeqId;
use crate::memory::Memory;
use crate::rollback::{Checkpoint, ListedCheckpoint};
use crate::snapshot::reservation::Reservation;
use crate::snapshot::{Block, Cells, CheckpointRef};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;

impl Memory {
    /// Reserve what was chosen. After an error the caller frees what was reserved until then.
    pub(super) fn reserve_import(&mut self, choice: &Choice<'_, '_>) -> Result<(), Error> {
        let Request { snapshot, ref places, .. } = *choice.request;
        let placement = Placement {
            caches: places.iter().map(|place| place.cache as u32).collect(),
            blocks: vec![Vec::new(); places.len()],
            states: vec![None; snapshot.n_states as usize],
            journals: vec![None; snapshot.journals.len()],
        };
        let mut own = Reservation { placement, ..Reservation::default() };
        let reserved = self
            .reserve_checkpoints(choice, &mut own)
            .and_then(|()| self.reserve_cells(choice, &mut own))
            .and_then(|()| self.reserve_states(choice, &mut own));
        (self.reservation, self.open) = (own, true);
        reserved
    }

    /// Reserve checkpoints with their journals, and make lists of them.
    fn reserve_checkpoints(&mut self, choice: &Choice<'_, '_>, own: &mut Reservation) -> Result<(), Error> {
        let Request { snapshot, seqs, .. } = *choice.request;
        let mut reserved = vec![None; snapshot.checkpoints.len()];
        for kept in &choice.checkpoints {
            let readers = kept.marks.iter().filter(|(_, mark)| mark.n_rows.min(kept.n_rows) > 0).count();
            let (refs, readers) = (kept.marks.len() as u32, readers as u32);
            let (pinned, floor) = (kept.pinned, kept.checkpoint.floor);
            let adopted = Checkpoint { refs, readers, pinned, floor, journal: None };
            let refused = Error::Full { what: "checkpoints", need: 1, free: 0, seq: SeqId::default() };
            let id = self.checkpoints.adopt(adopted).ok_or(refused)?;
            own.checkpoints.push(id);
            reserved[kept.number] = Some((id, kept.n_rows));
            let journal = kept.checkpoint.journal.filter(|_| kept.n_rows > 0);
            if let (Some(journal), Some(row)) = (journal, self.checkpoints.first_row(id)) {
                own.placement.journals[journal as usize] = Some(row..row + kept.n_rows);
            }
        }
        for (sequence, &seq) in snapshot.sequences.iter().zip(seqs) {
            let entry = |mark: &CheckpointRef| {
                let (id, n_rows) = reserved[mark.checkpoint as usize]?;
                Some(ListedCheckpoint { id, pos: mark.pos, n_rows: mark.n_rows.min(n_rows) })
            };
            let mut list = self.checkpoints.empty_list(sequence.checkpoints.len())?;
            list.extend(sequence.checkpoints.iter().filter_map(entry));
            own.lists.push((seq, list));
        }
        Ok(())
    }

    /// Reserve blocks and make block tables of them, for sequences and for checkpoints.
    fn reserve_cells(&mut self, choice: &Choice<'_, '_>, own: &mut Reservation) -> Result<(), Error> {
        let (request, placed) = (choice.request, &mut own.placement.blocks);
        for (group, place) in request.places.iter().enumerate() {
            // Groups in one cache share their blocks.
            if let Some(twin) = request.places[..group].iter().position(|other| other.cache == place.cache) {
                placed[group] = placed[twin].clone();
                continue;
            }
            let Some(cells) = self.caches.cells_mut(place.cache) else { continue };
            let (table_room, window) = (cells.table_room, &cells.window);
            let blocks = &request.snapshot.blocks[group];
            let take = |(users, block): (u32, &Block)| {
                let taken = (users > 0).then(|| cells.pool.take(users))?;
                debug_assert!(taken.is_some(), "the choice fits");
                cells.pool.set_all_pos(taken?, &block.pos);
                taken
            };
            placed[group] = choice.users(group).into_iter().zip(blocks).map(take).collect();
            let taken = &placed[group];
            for (cells, &seq) in choice.cells[group].iter().zip(request.seqs) {
                let mut table = imported(cells, taken, table_room)?;
                if window.is_some() {
                    table.gone = Gone { whole_from: cells.whole_from, start: cells.start };
                }
                own.cells.push((place.cache, seq, table));
            }
            for (kept, &id) in choice.checkpoints.iter().zip(&own.checkpoints) {
                if let (Some(cells), Some(window)) = (&kept.cells[group], window) {
                    let mut table = imported(cells, taken, window.held_room)?;
                    table.gone.whole_from = cells.whole_from;
                    own.checkpoint_cells.push((place.cache, id, table));
                }
            }
        }
        Ok(())
    }

    /// Reserve state slots for current states and for those of checkpoints.
    fn reserve_states(&mut self, choice: &Choice<'_, '_>, own: &mut Reservation) -> Result<(), Error> {
        let Request { snapshot, seqs, .. } = *choice.request;
        let Some(states) = &mut self.caches.states else { return Ok(()) };
        let placed = &mut own.placement.states;
        for (users, slot) in
            choice.state_users().into_iter().zip(&mut *placed).filter(|(users, _)| *users > 0)
        {
            let refused = Error::Full { what: "states", need: 1, free: 0, seq: SeqId::default() };
            *slot = Some(states.slots.take(users).ok_or(refused)?);
        }
        let slot = |state: Option<u32>| state.and_then(|state| placed[state as usize]);
        for (sequence, &seq) in snapshot.sequences.iter().zip(seqs) {
            let state = sequence.state.and_then(|state| {
                Some(CurrentState { slot: slot(state.state)?, first: state.first, last: sequence.last })
            });
            own.states.push((seq, state));
        }
        for (kept, &id) in choice.checkpoints.iter().zip(&own.checkpoints) {
            if let Some(state) = kept.checkpoint.state {
                own.checkpoint_states.push((id, HeldState { slot: slot(state.state), first: state.first }));
            }
        }
        Ok(())
    }
}

/// Return the block table in terms of the reserved blocks.
fn imported(cells: &Cells, blocks: &[Option<u32>], room: usize) -> Result<BlockTable, Error> {
    let place = |extent: &BlockEntry| match blocks.get(extent.block as usize) {
        Some(Some(block)) if extent.live != 0 => BlockEntry { block: *block, ..*extent },
        _ => BlockEntry::EMPTY,
    };
    let extents: Vec<BlockEntry> = cells.extents.iter().map(place).collect();
    BlockTable::of(&extents, room)
}
