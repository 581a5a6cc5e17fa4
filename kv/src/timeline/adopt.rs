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

    /// How many checkpoints can be made.
    pub fn n_free(&self) -> usize {
        self.free.len()
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
