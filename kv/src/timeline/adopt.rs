//! Checkpoints and lines that come from elsewhere.

use super::{Checkpoint, Entry, Line, Timeline};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::memory::Part;
use alloc::boxed::Box;

/// A checkpoint that comes from elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adopted {
    /// How many lines it will be in, and how many of them use its journal.
    pub refs: u32,
    pub readers: u32,
    pub pinned: bool,
    pub anchor: bool,
}

/// Room for checkpoints from elsewhere, counted down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    others: usize,
    /// Anchors, one a sequence, have room of their own.
    anchors: usize,
    n_free: usize,
}

impl Room {
    /// Whether there is room for one more anchor, which is taken.
    pub fn anchor(&mut self) -> bool {
        let is_there = self.anchors > 0 && self.n_free > 0;
        self.anchors -= usize::from(is_there);
        self.n_free -= usize::from(is_there);
        is_there
    }

    /// The same for any other checkpoint.
    pub fn other(&mut self) -> bool {
        let is_there = self.others > 0 && self.n_free > 0;
        self.others -= usize::from(is_there);
        self.n_free -= usize::from(is_there);
        is_there
    }
}

impl Timeline {
    /// How many checkpoints there can be.
    pub fn len(&self) -> usize {
        self.checkpoints.len()
    }

    /// Whether a checkpoint is pinned, and whether it is an anchor.
    pub fn stays_as(&self, id: u32) -> (bool, bool) {
        let Checkpoint { pinned, anchor, .. } = self.checkpoints[id as usize];
        (pinned, anchor)
    }

    /// Whether a checkpoint is in any line.
    pub fn is_in_use(&self, id: u32) -> bool {
        self.checkpoints[id as usize].refs > 0
    }

    /// Whether the memory needs checkpoints at all.
    pub fn is_needed(&self) -> bool {
        self.sizes.needed
    }

    /// Room for checkpoints from elsewhere: one for each sequence's end and one for each edit stay free.
    pub fn room(&self) -> Room {
        let n_free = self.free.len();
        Room { others: n_free.saturating_sub(2 * self.lines.len()), anchors: self.lines.len(), n_free }
    }

    /// How many more pins the budget pays for.
    pub fn n_free_pins(&self) -> u32 {
        let n_pinned = self.checkpoints.iter().filter(|checkpoint| checkpoint.pinned).count();
        self.sizes.n_paid.saturating_sub(n_pinned as u32)
    }

    /// Rows of a journal.
    pub fn journal_len(&self) -> u32 {
        if self.sizes.n_journals > 0 { self.params.journal } else { 0 }
    }

    /// How many journals can be begun.
    pub fn n_free_journals(&self) -> usize {
        self.free_journals.len()
    }

    /// Whether a ladder wants a checkpoint there.
    pub fn wants_rung(&self, pos: Pos, end: Pos) -> bool {
        self.is_rung(pos, end)
    }

    /// Takes a checkpoint in, with a journal if it has readers; `None` if there is none free. No line names it yet.
    pub fn adopt(&mut self, adopted: Adopted) -> Option<u32> {
        let Adopted { refs, readers, pinned, anchor } = adopted;
        let id = self.free.pop()?;
        let journal = if readers > 0 { self.free_journals.pop() } else { None };
        let readers = if journal.is_some() { readers } else { 0 };
        self.checkpoints[id as usize] = Checkpoint { refs, pinned, anchor, journal, readers };
        Some(id)
    }

    /// Takes back what `adopt` did.
    pub fn abandon(&mut self, id: u32) {
        let checkpoint = core::mem::take(&mut self.checkpoints[id as usize]);
        self.free_journals.extend(checkpoint.journal);
        self.free.push(id);
    }

    /// A line of these entries.
    pub fn line_of(&self, entries: &[Entry]) -> Result<Line, Error> {
        let mut line = Line::default();
        line.make_room(entries.len().max((self.sizes.n_checkpoints as usize).min(64)))?;
        entries.iter().for_each(|entry| line.push(*entry));
        Ok(line)
    }

    /// Gives a sequence another way back, whose checkpoints count it already.
    pub fn give(&mut self, seq: SeqId, line: Line, parts: &mut [Box<dyn Part>]) {
        self.forget(seq, parts);
        self.lines[seq.index()] = line;
    }

    /// Drops what the budget does not pay for.
    pub fn settle(&mut self, parts: &mut [Box<dyn Part>]) {
        self.keep_to_budget(parts);
    }
}
