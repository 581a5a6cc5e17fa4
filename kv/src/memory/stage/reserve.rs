//! Reserving room for what was chosen of an image.

use super::choice::Choice;
use super::fit::Matched;
use super::{PartStage, Stage};
use crate::error::Error;
use crate::extent::Table;
use crate::ids::SeqId;
use crate::image::{Block, Cells, Image, Mark};
use crate::memory::Hybrid;
use crate::memory::cells::{CellPart, Given};
use crate::memory::recurrent::{Held, Tip};
use crate::timeline::{Adopted, Entry};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::Extent;
use core::ops::Range;

/// Where things of the image were put.
pub(super) struct Reserved {
    /// For each group, for each of its blocks.
    pub blocks: Vec<Vec<Option<u32>>>,
    /// For each state its slot.
    pub slots: Vec<Option<u32>>,
    /// For each journal its first row and how many rows are taken.
    pub rows: Vec<Option<Range<u32>>>,
}

impl Hybrid {
    /// Takes the room for what was chosen; there is enough.
    pub(super) fn reserve_stage(
        &mut self,
        image: &Image,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
    ) -> Result<Reserved, Error> {
        self.staged = Some(Stage::default());
        let reserved = self.reserve_all(image, seqs, matched, choice);
        if reserved.is_err() {
            self.drop_stage();
        }
        reserved
    }

    fn reserve_all(
        &mut self,
        image: &Image,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
    ) -> Result<Reserved, Error> {
        let ids = self.adopt(choice, image)?;
        let mut reserved = Reserved {
            blocks: image.blocks.iter().map(|blocks| vec![None; blocks.len()]).collect(),
            slots: vec![None; image.n_states as usize],
            rows: vec![None; image.journals.len()],
        };
        self.reserve_cells(image, seqs, matched, choice, &ids, &mut reserved)?;
        self.reserve_states(image, seqs, choice, &ids, &mut reserved)?;
        for (kept, &id) in choice.checkpoints.iter().zip(&ids) {
            let journal = image.checkpoints[kept.number].journal.filter(|_| kept.n_rows > 0);
            if let (Some(journal), Some(row)) = (journal, self.timeline.first_row(id)) {
                reserved.rows[journal as usize] = Some(row..row + kept.n_rows);
            }
        }
        let mut id_of = vec![None; image.checkpoints.len()];
        choice.checkpoints.iter().zip(&ids).for_each(|(kept, &id)| id_of[kept.number] = Some(id));
        let id_of = |mark: &Mark| id_of.get(mark.checkpoint as usize).copied().flatten();
        for (marks, &seq) in choice.lines.iter().zip(seqs) {
            let entry = |mark: &Mark| Some(Entry { id: id_of(mark)?, pos: mark.pos, n_rows: mark.n_rows });
            let entries: Vec<Entry> = marks.iter().filter_map(entry).collect();
            let line = self.timeline.line_of(&entries)?;
            if let Some(stage) = &mut self.staged {
                stage.lines.push((seq, line));
            }
        }
        Ok(reserved)
    }

    /// Takes the checkpoints.
    fn adopt(&mut self, choice: &Choice, image: &Image) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(choice.checkpoints.len());
        let mut users = vec![(0, 0); image.checkpoints.len()];
        for mark in choice.lines.iter().flatten() {
            let (refs, readers) = &mut users[mark.checkpoint as usize];
            *refs += 1;
            *readers += u32::from(mark.n_rows > 0);
        }
        for kept in &choice.checkpoints {
            let (refs, readers) = users[kept.number];
            let anchor = image.checkpoints[kept.number].anchor;
            let adopted = Adopted { refs, readers, pinned: kept.pinned, anchor };
            let refused = Error::Full { what: "checkpoints", need: 1, free: 0, seq: SeqId::default() };
            let id = self.timeline.adopt(adopted).ok_or(refused)?;
            if let Some(stage) = &mut self.staged {
                stage.checkpoints.push(id);
            }
            ids.push(id);
        }
        Ok(ids)
    }

    fn reserve_cells(
        &mut self,
        image: &Image,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &Choice,
        ids: &[u32],
        reserved: &mut Reserved,
    ) -> Result<(), Error> {
        for (i, Matched { place, group }) in matched.iter().enumerate() {
            // Groups that lie in one part are the same blocks.
            let twin = matched[..i].iter().find(|other| other.place.part == place.part);
            if let Some(twin) = twin {
                reserved.blocks[*group] = reserved.blocks[twin.group].clone();
                continue;
            }
            let Some(part) = self.parts.get_mut(place.part).and_then(|part| part.as_cells_mut()) else {
                continue;
            };
            // Known to the stage at once, so that what goes wrong from here on gives the blocks back.
            let own = self.staged.get_or_insert_default().part(place.part);
            let taken = take_blocks(part, image, choice, *group, own);
            let numbers = &mut reserved.blocks[*group];
            *numbers = taken;
            for (cells, &seq) in choice.cells[*group].iter().zip(seqs) {
                own.sequences.push((seq, given(cells, numbers, part.table_room())?));
            }
            for (kept, &id) in choice.checkpoints.iter().zip(ids) {
                if let Some(cells) = kept.cells[*group].as_ref() {
                    own.checkpoints.push((id, given(cells, numbers, part.checkpoint_room())?));
                }
            }
        }
        Ok(())
    }

    fn reserve_states(
        &mut self,
        image: &Image,
        seqs: &[SeqId],
        choice: &Choice,
        ids: &[u32],
        reserved: &mut Reserved,
    ) -> Result<(), Error> {
        let Some(states) = self.parts.iter_mut().find_map(|part| part.as_states_mut()) else {
            return Ok(());
        };
        let stage = self.staged.get_or_insert_default();
        for (state, users) in choice.state_users(image).into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let free = states.n_free() as u64;
            let refused = Error::Full { what: "states", need: 1, free, seq: SeqId::default() };
            let slot = states.take(users).ok_or(refused)?;
            stage.slots.push(slot);
            reserved.slots[state] = Some(slot);
        }
        let slot = |state: Option<u32>| state.and_then(|state| reserved.slots[state as usize]);
        for (sequence, &seq) in image.sequences.iter().zip(seqs) {
            let tip = sequence.state.and_then(|state| {
                Some(Tip { slot: slot(state.state)?, first: state.first, last: sequence.last })
            });
            stage.tips.push((seq, tip));
        }
        for (kept, &id) in choice.checkpoints.iter().zip(ids) {
            if let Some(state) = image.checkpoints[kept.number].state {
                stage.held.push((id, Held { slot: slot(state.state), first: state.first }));
            }
        }
        Ok(())
    }
}

/// Takes the blocks that a group needs and gives them their positions.
fn take_blocks(
    part: &mut dyn CellPart,
    image: &Image,
    choice: &Choice,
    group: usize,
    own: &mut PartStage,
) -> Vec<Option<u32>> {
    let blocks = &image.blocks[group];
    let users = choice.users(group, blocks.len());
    let take = |(users, block): (u32, &Block)| {
        if users == 0 {
            return None;
        }
        let taken = part.pool_mut().take(users)?;
        part.pool_mut().set_all_pos(taken, &block.pos);
        own.taken.push(taken);
        Some(taken)
    };
    users.into_iter().zip(blocks).map(take).collect()
}

/// Cells in the blocks that were taken for them.
fn given(cells: &Cells, blocks: &[Option<u32>], room: usize) -> Result<Given, Error> {
    let place = |extent: &Extent| match blocks.get(extent.block as usize) {
        Some(Some(block)) if extent.live != 0 => Extent { block: *block, ..*extent },
        _ => Extent::EMPTY,
    };
    let extents: Vec<Extent> = cells.extents.iter().map(place).collect();
    let table = Table::of(&extents, room)?;
    Ok(Given { table, whole_from: cells.whole_from, start: cells.start })
}
