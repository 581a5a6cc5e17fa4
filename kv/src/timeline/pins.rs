//! Checkpoints at the end of a sequence that stay: pins of the caller, and what an edit leaves to begin from.

use super::{Checkpoint, Entry, Timeline};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::memory::Part;
use alloc::boxed::Box;

impl Timeline {
    /// Makes the end of a sequence, `end`, a checkpoint that stays until it is unpinned or left behind.
    ///
    /// # Errors
    /// [`Error::Pinned`] if the budget does not pay for it.
    pub fn pin(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) -> Result<(), Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            // Held anyway.
            return Ok(());
        }
        let is_pinned = self.lines[seq.index()].last().is_some_and(|e| e.pos == end && self.is_pinned(e.id));
        let n_pinned = self.checkpoints.iter().filter(|c| c.pinned).count();
        if !is_pinned && n_pinned >= self.sizes.n_paid as usize {
            return self.no_pin();
        }
        let Some(id) = self.tip(seq, end, parts)? else { return self.no_pin() };
        self.checkpoints[id as usize].pinned = true;
        self.keep_to_budget(parts);
        Ok(())
    }

    /// As `pin`, whatever the budget, and until it is unpinned nothing before it is dropped; false if it was pinned, or
    /// needs no pin.
    pub fn hold(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) -> Result<bool, Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            return Ok(false);
        }
        let Some(id) = self.tip(seq, end, parts)? else { return self.no_pin().map(|()| false) };
        let is_new = !core::mem::replace(&mut self.checkpoints[id as usize].pinned, true);
        if is_new {
            parts.iter_mut().for_each(|part| part.hold_all(id, seq));
            self.lines[seq.index()].held = Some(end);
        }
        Ok(is_new)
    }

    /// The end of a sequence is the first position that can be gone back to, because what came before was changed.
    pub fn anchor(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) -> Result<(), Error> {
        self.forget(seq, parts);
        if self.sizes.needed
            && end > Pos::ZERO
            && let Some(id) = self.tip(seq, end, parts)?
        {
            self.checkpoints[id as usize].anchor = true;
        }
        Ok(())
    }

    /// The checkpoint at the end of a sequence, made if there is none.
    fn tip(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) -> Result<Option<u32>, Error> {
        if let Some(last) = self.lines[seq.index()].last().filter(|last| last.pos == end) {
            return Ok(Some(last.id));
        }
        self.lines[seq.index()].make_room_for_one()?;
        if self.free.is_empty()
            && let Some(id) = self.least_useful()
        {
            self.remove_everywhere(id, parts);
        }
        let Some(id) = self.free.pop() else { return Ok(None) };
        self.checkpoints[id as usize] = Checkpoint { refs: 1, ..Checkpoint::default() };
        self.lines[seq.index()].push(Entry { id, pos: end, n_rows: 0 });
        parts.iter_mut().for_each(|part| part.hold_tip(id, seq, end));
        Ok(Some(id))
    }

    fn no_pin(&self) -> Result<(), Error> {
        Err(Error::Pinned { limit: self.sizes.n_paid, checkpoint_bytes: self.params.checkpoint_bytes })
    }

    /// Lets the checkpoint at `pos` be dropped like any other.
    pub fn unpin(&mut self, seq: SeqId, pos: Pos) -> bool {
        let held = &mut self.lines[seq.index()].held;
        *held = held.filter(|held| *held != pos);
        let entry = self.lines[seq.index()].iter().find(|entry| entry.pos == pos && self.is_pinned(entry.id));
        let Some(id) = entry.map(|entry| entry.id) else { return false };
        self.checkpoints[id as usize].pinned = false;
        true
    }
}
