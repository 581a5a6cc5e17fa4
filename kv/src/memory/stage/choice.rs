//! Which of an image's cells and checkpoints a memory takes.

use super::Fit;
use super::fit::Matched;
use crate::error::Error;
use crate::extent::bits;
use crate::ids::{Pos, SeqId};
use crate::image::{Block, Cells, Image, Mark, Sequence, drop_dead_spans};
use crate::memory::Hybrid;
use crate::memory::cells::CellPart;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, Extent};

/// What is taken of an image.
pub(super) struct Choice {
    /// For each group, for each sequence, its cells.
    pub cells: Vec<Vec<Cells>>,
    /// The checkpoints taken, the most useful first.
    pub checkpoints: Vec<Kept>,
    /// For each sequence its marks, those of checkpoints taken.
    pub lines: Vec<Vec<Mark>>,
}

/// A checkpoint that is taken.
pub(super) struct Kept {
    /// Its number in the image.
    pub number: usize,
    /// For each group the cells that it keeps apart.
    pub cells: Vec<Option<Cells>>,
    /// The position of the token that follows it.
    pos: Pos,
    /// Whether it is one that nothing before can be made again without.
    anchor: bool,
    /// Whether it stays pinned: a pin that the budget does not pay for is none.
    pub pinned: bool,
    /// Rows of its journal that are taken.
    pub n_rows: u32,
}

impl Choice {
    /// What was left out.
    pub fn fit(&self, image: &Image) -> Fit {
        let n_rows: u32 = self.checkpoints.iter().map(|kept| kept.n_rows).sum();
        let saved: u32 = image.journals.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let pinned = |number: usize| image.checkpoints[number].pinned;
        let unpinned = self.checkpoints.iter().filter(|kept| pinned(kept.number) && !kept.pinned);
        Fit {
            n_unpinned: unpinned.count() as u32,
            n_checkpoints_dropped: (image.checkpoints.len() - self.checkpoints.len()) as u32,
            n_rows_dropped: saved.saturating_sub(n_rows),
            conversion: None,
        }
    }

    /// The blocks of a group that are taken, and how many tables use each.
    pub fn users(&self, group: usize, n_blocks: usize) -> Vec<u32> {
        let mut users = vec![0; n_blocks];
        let held = self.checkpoints.iter().filter_map(|kept| kept.cells.get(group)?.as_ref());
        let extents = self.cells[group].iter().chain(held).flat_map(|cells| &cells.extents);
        extents.filter(|extent| extent.live != 0).for_each(|extent| users[extent.block as usize] += 1);
        users
    }

    /// The states that are taken, and how many tips and checkpoints use each.
    pub fn state_users(&self, image: &Image) -> Vec<u32> {
        let mut users = vec![0; image.n_states as usize];
        let held = self.checkpoints.iter().map(|kept| image.checkpoints[kept.number].state);
        let states = image.sequences.iter().map(|sequence| sequence.state).chain(held);
        states.filter_map(|state| state?.state).for_each(|state| users[state as usize] += 1);
        users
    }
}

impl Hybrid {
    /// Chooses what to take, as much as there is room for.
    pub(super) fn choose(&self, image: &Image, seqs: &[SeqId], matched: &[Matched]) -> Result<Choice, Error> {
        let mut cells = vec![Vec::new(); matched.len()];
        for Matched { place, group } in matched {
            let Some(part) = self.cell_part(place.part) else { continue };
            for (sequence, &seq) in image.sequences.iter().zip(seqs) {
                let own = &sequence.cells[*group];
                check_len(part, own, seq)?;
                check_whole(part, own, seq)?;
                cells[*group].push(own.clone());
            }
        }
        check_merged(image, seqs, matched)?;
        let mut choice = Choice { cells, checkpoints: Vec::new(), lines: Vec::new() };
        if self.timeline.is_needed() {
            choice.checkpoints = self.candidates(image, matched);
        }
        self.make_fit(image, seqs, matched, &mut choice)?;
        self.choose_rows(image, &mut choice);
        Ok(choice)
    }

    /// The checkpoints that could be taken, the most useful first, and no more than there is room for.
    fn candidates(&self, image: &Image, matched: &[Matched]) -> Vec<Kept> {
        let mut marks: Vec<Vec<(&Sequence, Mark)>> = vec![Vec::new(); image.checkpoints.len()];
        for sequence in &image.sequences {
            sequence.line.iter().for_each(|mark| marks[mark.checkpoint as usize].push((sequence, *mark)));
        }
        let mut ranked = Vec::new();
        for (number, marks) in marks.iter().enumerate() {
            let Some((sequence, mark)) = marks.first() else { continue };
            let end = image.end_of(sequence);
            let checkpoint = &image.checkpoints[number];
            let rank = match () {
                () if checkpoint.anchor => 0,
                () if checkpoint.pinned => 1,
                () if marks.iter().any(|(_, mark)| mark.n_rows > 0) => 2,
                () if self.timeline.wants_rung(mark.pos, end) => 3,
                () => 4,
            };
            ranked.push((rank, end.0 - mark.pos.0, number));
        }
        ranked.sort_by_key(|(rank, distance, _)| (*rank, *distance));
        let keep = |(.., number): (i32, i32, usize)| {
            let cells = self.cells_for(image, matched, number, &marks[number])?;
            let pos = marks[number].first()?.1.pos;
            let anchor = image.checkpoints[number].anchor;
            Some(Kept { number, cells, pos, anchor, pinned: false, n_rows: 0 })
        };
        let mut room = self.timeline.room();
        let has_room = |kept: &Kept| if kept.anchor { room.anchor() } else { room.other() };
        let mut kept: Vec<Kept> = ranked.into_iter().filter_map(keep).filter(has_room).collect();
        let mut pins = self.timeline.n_free_pins();
        for kept in kept.iter_mut().filter(|kept| image.checkpoints[kept.number].pinned) {
            kept.pinned = pins > 0;
            pins = pins.saturating_sub(1);
        }
        kept
    }

    /// For each group the cells that a checkpoint keeps apart in this memory; `None` if some are not to be had.
    fn cells_for(
        &self,
        image: &Image,
        matched: &[Matched],
        number: usize,
        marks: &[(&Sequence, Mark)],
    ) -> Option<Vec<Option<Cells>>> {
        let pos = marks.first()?.1.pos;
        let mut list = vec![None; matched.len()];
        for Matched { place, group } in matched {
            let Some(part) = self.cell_part(place.part).filter(|part| part.recycles()) else { continue };
            let saved = image.checkpoints[number].cells[*group].clone();
            let needed = part.needed_from(pos);
            let derived = || {
                let mut with = marks.iter().map(|(sequence, _)| &sequence.cells[*group]);
                let whole = with.find(|cells| cells.whole_from <= needed)?;
                Some(whole.within(&image.blocks[*group], needed..pos))
            };
            list[*group] = Some(saved.or_else(derived)?);
        }
        Some(list)
    }

    /// Lets go of what lies behind windows, then of checkpoints, until the rest fits; an error if not even that does.
    fn make_fit(
        &self,
        image: &Image,
        seqs: &[SeqId],
        matched: &[Matched],
        choice: &mut Choice,
    ) -> Result<(), Error> {
        if self.lacking(image, matched, choice).is_none() {
            return Ok(());
        }
        self.trim(image, matched, choice);
        let checkpoints = core::mem::take(&mut choice.checkpoints);
        if let Some((what, need, free)) = self.lacking(image, matched, choice) {
            let seq = seqs.first().copied().unwrap_or_default();
            return Err(Error::Full { what, need, free, seq });
        }
        choice.checkpoints = checkpoints;
        while self.lacking(image, matched, choice).is_some() {
            // In steps, so that dropping very many takes few looks.
            let n = choice.checkpoints.len();
            choice.checkpoints.truncate(n - n.div_ceil(16));
        }
        Ok(())
    }

    /// Lets go of the cells that a sequence which was appended to would not have kept.
    fn trim(&self, image: &Image, matched: &[Matched], choice: &mut Choice) {
        for Matched { place, group } in matched {
            let Some(part) = self.cell_part(place.part).filter(|part| part.recycles()) else { continue };
            for cells in &mut choice.cells[*group] {
                trim(part, cells, &image.blocks[*group]);
            }
        }
    }

    /// What there is too little of: its name, how much is needed, and how much is free.
    fn lacking(
        &self,
        image: &Image,
        matched: &[Matched],
        choice: &Choice,
    ) -> Option<(&'static str, u64, u64)> {
        for Matched { place, group } in matched {
            let Some(part) = self.cell_part(place.part) else { continue };
            let users = choice.users(*group, image.blocks[*group].len());
            let need = users.iter().filter(|n| **n > 0).count() as u64;
            let (free, cells) = (u64::from(part.pool().n_free()), BLOCK_CELLS as u64);
            if need > free {
                return Some(("cells", need * cells, free * cells));
            }
        }
        let states = self.states_part()?;
        let need = choice.state_users(image).iter().filter(|n| **n > 0).count() as u64;
        let free = states.n_free() as u64;
        (need > free).then_some(("states", need, free))
    }

    /// Decides whose journals are taken, and which marks that leaves.
    fn choose_rows(&self, image: &Image, choice: &mut Choice) {
        let mut left = self.timeline.n_free_journals();
        let most = self.timeline.journal_len();
        let mut taken = vec![None; image.checkpoints.len()];
        for kept in &mut choice.checkpoints {
            let saved = image.checkpoints[kept.number].journal;
            let saved = saved.map_or(0, |journal| image.journals[journal as usize]);
            // A journal reaches to the next multiple of its length and no further: what continues it counts on that.
            let reach = most - (kept.pos.0 as u32).checked_rem(most).unwrap_or(0);
            if saved > 0 && most > 0 && left > 0 {
                left -= 1;
                kept.n_rows = saved.min(reach);
            }
            taken[kept.number] = Some(kept.n_rows);
        }
        let lines = image.sequences.iter().map(|sequence| {
            let marks = sequence.line.iter().filter_map(|mark| {
                let n_rows = taken[mark.checkpoint as usize]?;
                Some(Mark { n_rows: mark.n_rows.min(n_rows), ..*mark })
            });
            marks.collect()
        });
        choice.lines = lines.collect();
    }
}

fn check_len(part: &dyn CellPart, cells: &Cells, seq: SeqId) -> Result<(), Error> {
    let (need, free) = (cells.len(), part.n_ctx());
    if !part.recycles() && need > free {
        return Err(Error::Full { what: "cells", need: need.into(), free: free.into(), seq });
    }
    Ok(())
}

/// A part that lets no cells go must get all.
fn check_whole(part: &dyn CellPart, cells: &Cells, seq: SeqId) -> Result<(), Error> {
    if part.recycles() || cells.whole_from == Pos::ZERO {
        return Ok(());
    }
    Err(Error::Gone { seq, whole_from: cells.whole_from })
}

/// Lets go of the entries that lie behind the window and the margin.
fn trim(part: &dyn CellPart, cells: &mut Cells, blocks: &[Block]) {
    let Some(last) = cells.last_pos(blocks) else { return };
    let from = part.kept_from(last.next());
    let first = cells.positions(blocks).next().unwrap_or_default();
    let is_kept = |extent: &&mut Extent| {
        let pos = blocks.get(extent.block as usize).map(|block| block.pos);
        pos.is_some_and(|pos| bits(extent.live).any(|cell| pos[cell as usize] >= from))
    };
    let mut last_gone = None;
    for extent in cells.extents.iter_mut().take_while(|extent| !is_kept(extent)) {
        let gone = Cells { extents: vec![*extent], ..Cells::default() };
        last_gone = gone.last_pos(blocks).or(last_gone);
        *extent = Extent::EMPTY;
    }
    let Some(last_gone) = last_gone else { return };
    drop_dead_spans(&mut cells.extents);
    if cells.whole_from == Pos::ZERO {
        cells.start = first;
    }
    cells.whole_from = last_gone.next();
}

/// Groups that this memory keeps in one place must hold the same cells.
fn check_merged(image: &Image, seqs: &[SeqId], matched: &[Matched]) -> Result<(), Error> {
    for (i, Matched { place, group }) in matched.iter().enumerate() {
        for twin in matched[..i].iter().filter(|other| other.place.part == place.part) {
            for (sequence, &seq) in image.sequences.iter().zip(seqs) {
                let (a, b) = (&sequence.cells[*group], &sequence.cells[twin.group]);
                let same = a.extents == b.extents
                    && a.positions(&image.blocks[*group]).eq(b.positions(&image.blocks[twin.group]));
                let whole_from = a.whole_from.max(b.whole_from);
                match same {
                    true => {}
                    false if whole_from > Pos::ZERO => return Err(Error::Gone { seq, whole_from }),
                    false => return Err(Error::Image { what: "cells of group", index: *group as u64 }),
                }
            }
        }
    }
    Ok(())
}
