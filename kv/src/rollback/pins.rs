//! Checkpoints at the end of a sequence that stay: pins of the caller, ends of savepoints, and
//! rollback floors.

use super::checkpoints::{Checkpoint, Checkpoints, ListedCheckpoint};
use crate::cache::Caches;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;

impl Checkpoints {
    /// Make the end of a sequence, `end`, a pinned checkpoint, which stays until it is unpinned or
    /// the sequence is cut before it.
    ///
    /// # Errors
    /// - [`Error::Pinned`] if the budget does not pay for it.
    /// - [`Error::OutOfMemory`] if the list cannot grow.
    pub fn pin(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> Result<(), Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            // Position 0 and the positions of a memory without checkpoints can be restored without
            // a pin.
            return Ok(());
        }
        let is_pinned = self.lists[seq.index()].last().is_some_and(|e| e.pos == end && self.get(e.id).pinned);
        if !is_pinned && self.n_free_pins() == 0 {
            return self.no_pin();
        }
        let Some(id) = self.checkpoint_at_end(seq, end, caches)? else { return self.no_pin() };
        self.checkpoints[id as usize].pinned = true;
        self.keep_to_budget(caches);
        Ok(())
    }

    /// Pin the end of a sequence for a savepoint, whatever the budget. Nothing before it is dropped
    /// until it is unpinned.
    ///
    /// Return false if it was pinned already, or needs no pin.
    pub fn hold(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> Result<bool, Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            return Ok(false);
        }
        let Some(id) = self.checkpoint_at_end(seq, end, caches)? else {
            return self.no_pin().map(|()| false);
        };
        let is_new = !core::mem::replace(&mut self.checkpoints[id as usize].pinned, true);
        if is_new {
            caches.hold_all(id, seq);
            self.held[seq.index()] = Some(end);
        }
        Ok(is_new)
    }

    /// Make the end of a sequence its rollback floor, because earlier tokens were changed by an
    /// edit.
    pub fn floor(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> Result<(), Error> {
        self.forget(seq, caches);
        if self.sizes.needed
            && end > Pos::ZERO
            && let Some(id) = self.checkpoint_at_end(seq, end, caches)?
        {
            self.checkpoints[id as usize].floor = true;
        }
        Ok(())
    }

    /// Return the checkpoint at the end of a sequence, which is made if there is none.
    ///
    /// If no checkpoint is free, the least useful one makes room. `None` if that fails too.
    fn checkpoint_at_end(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> Result<Option<u32>, Error> {
        if let Some(last) = self.lists[seq.index()].last().filter(|last| last.pos == end) {
            return Ok(Some(last.id));
        }
        reserve::for_more(&mut self.lists[seq.index()], 1)?;
        if self.free.is_empty()
            && let Some(id) = self.least_useful()
        {
            self.remove_everywhere(id, caches);
        }
        let Some(id) = self.free.pop() else { return Ok(None) };
        self.checkpoints[id as usize] = Checkpoint { refs: 1, ..Checkpoint::default() };
        self.lists[seq.index()].push(ListedCheckpoint { id, pos: end, n_rows: 0 });
        caches.hold_end(id, seq, end);
        Ok(Some(id))
    }

    /// Return [`Error::Pinned`] with the budget.
    fn no_pin(&self) -> Result<(), Error> {
        Err(Error::Pinned { limit: self.sizes.n_paid, checkpoint_bytes: self.params.checkpoint_bytes })
    }

    /// Let the checkpoint at `pos` be dropped like any other; return false if none is pinned there.
    pub fn unpin(&mut self, seq: SeqId, pos: Pos) -> bool {
        self.held[seq.index()].take_if(|held| *held == pos);
        let entry =
            self.lists[seq.index()].iter().find(|entry| entry.pos == pos && self.get(entry.id).pinned);
        let Some(id) = entry.map(|entry| entry.id) else { return false };
        self.checkpoints[id as usize].pinned = false;
        true
    }
}
