//! Checkpoints at the end of a sequence that stay: pins of the caller, ends of savepoints, and
//! rollback floors.

use super::checkpoints::{Checkpoint, Checkpoints, LIST_ROOM, ListedCheckpoint};
use crate::cache::Caches;
use crate::cache::charges::Charge;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;

/// Checkpoint that [`Checkpoints::hold`] pinned for a savepoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldEnd {
    /// Number of the checkpoint.
    pub id: u32,
    /// True if the savepoint pinned it, rather than the caller before.
    pub is_new: bool,
    /// True if the checkpoint did not exist before.
    pub is_made: bool,
}

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
        if self.pinned_at(seq, end).is_some() {
            return Ok(());
        }
        if self.n_free_pins() == 0 {
            return self.no_pin();
        }
        let Some((id, is_made)) = self.checkpoint_at_end(seq, end, caches)? else { return self.no_pin() };
        if !self.pay_pin(id, caches) {
            if is_made {
                self.drop_end(seq, id, caches);
            }
            return self.no_pin();
        }
        self.keep_to_budget(caches);
        Ok(())
    }

    /// Pin a checkpoint if the budget pays for it beside the other pins, without the checkpoints
    /// that can be dropped for it; return true if it does.
    pub fn pay_pin(&mut self, id: u32, caches: &mut Caches) -> bool {
        caches.charge(id, Charge::Pinned, true);
        let is_paid = !caches.exceeds(Charge::Pinned);
        caches.charge(id, Charge::Pinned, is_paid);
        self.checkpoints[id as usize].pinned = is_paid;
        is_paid
    }

    /// Pin the end of a sequence for a savepoint, whatever the budget. Nothing before it is dropped
    /// until `release`.
    ///
    /// Return `None` if the end needs no pin.
    pub fn hold(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> Result<Option<HeldEnd>, Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            return Ok(None);
        }
        let Some((id, is_made)) = self.checkpoint_at_end(seq, end, caches)? else {
            return self.no_pin().map(|()| None);
        };
        let is_new = !core::mem::replace(&mut self.checkpoints[id as usize].pinned, true);
        caches.hold_all(id, seq);
        self.held[seq.index()] = Some(end);
        Ok(Some(HeldEnd { id, is_new, is_made }))
    }

    /// Drop the checkpoints of a sequence behind the one that `hold` returned: also one at the same
    /// position, with fewer cells, which the sequence made when it left its forks.
    pub fn cut_behind(&mut self, seq: SeqId, id: u32, caches: &mut Caches) {
        let at = self.list(seq).iter().position(|entry| entry.id == id);
        for i in (at.map_or(usize::MAX, |at| at + 1)..self.list(seq).len()).rev() {
            self.remove(seq, i, caches);
        }
    }

    /// Drop the checkpoint at the end of a sequence that was made for it alone.
    pub fn drop_end(&mut self, seq: SeqId, id: u32, caches: &mut Caches) {
        if let Some(at) = self.list(seq).iter().rposition(|entry| entry.id == id) {
            self.remove(seq, at, caches);
        }
    }

    /// Hold for a copy of a sequence what is held for the sequence.
    pub fn hold_copy(&mut self, seq: SeqId, copy: SeqId) {
        self.held[copy.index()] = self.held[seq.index()];
    }

    /// End what `hold` began for a sequence.
    pub fn end_hold(&mut self, seq: SeqId) {
        self.held[seq.index()] = None;
    }

    /// Reduce the checkpoint of a savepoint to what any other at `pos` retains, and unpin it if the
    /// savepoint pinned it.
    pub fn release(&mut self, id: u32, pos: Pos, is_new: bool, caches: &mut Caches) {
        caches.hold_less(id, pos);
        self.checkpoints[id as usize].pinned &= !is_new;
    }

    /// Make the end of a sequence its rollback floor, because the tokens before it are not known.
    /// Without room for it the sequence only loses positions to return to.
    pub fn floor(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) {
        if self.sizes.needed
            && end > Pos::ZERO
            && let Ok(Some((id, _))) = self.checkpoint_at_end(seq, end, caches)
        {
            self.checkpoints[id as usize].floor = true;
            self.settle_floors();
        }
    }

    /// Let floors be dropped like other checkpoints if all of their sequences have later ones.
    fn settle_floors(&mut self) {
        for i in 0..self.checkpoints.len() {
            let is_floor = |entry: &&ListedCheckpoint| self.get(entry.id).floor;
            let mut last = self.lists.iter().filter_map(|list| list.iter().rfind(is_floor));
            self.checkpoints[i].floor = self.checkpoints[i].floor && last.any(|entry| entry.id == i as u32);
        }
    }

    /// Return the checkpoint at the end of a sequence, and true if it was made because there was
    /// none.
    ///
    /// If no checkpoint is free, the least useful one makes room. `None` if that fails too.
    fn checkpoint_at_end(
        &mut self,
        seq: SeqId,
        end: Pos,
        caches: &mut Caches,
    ) -> Result<Option<(u32, bool)>, Error> {
        if let Some(last) = self.lists[seq.index()].last().filter(|last| last.pos == end) {
            return Ok(Some((last.id, false)));
        }
        // Further room, so that scheduled checkpoints find it however many pins there are.
        reserve::for_more(&mut self.lists[seq.index()], LIST_ROOM)?;
        if self.free.is_empty()
            && let Some(id) = self.least_useful()
        {
            self.remove_everywhere(id, caches);
        }
        let Some(id) = self.free.pop() else { return Ok(None) };
        self.checkpoints[id as usize] = Checkpoint { refs: 1, ..Checkpoint::default() };
        self.lists[seq.index()].push(ListedCheckpoint { id, pos: end, n_rows: 0 });
        caches.hold_end(id, seq, end);
        Ok(Some((id, true)))
    }

    /// Return [`Error::Pinned`] with the pins and the budget.
    fn no_pin(&self) -> Result<(), Error> {
        let limit = self.checkpoints.iter().filter(|checkpoint| checkpoint.pinned).count() as u32;
        Err(Error::Pinned { limit, checkpoint_bytes: self.params.checkpoint_bytes })
    }

    /// Return a pinned checkpoint of a sequence at `pos`.
    fn pinned_at(&self, seq: SeqId, pos: Pos) -> Option<u32> {
        self.list(seq)
            .iter()
            .find(|entry| entry.pos == pos && self.get(entry.id).pinned)
            .map(|entry| entry.id)
    }

    /// Let the checkpoints at `pos` be dropped like any other; return false if none is pinned.
    pub fn unpin(&mut self, seq: SeqId, pos: Pos, caches: &mut Caches) -> bool {
        self.held[seq.index()].take_if(|held| *held == pos);
        let mut was_pinned = false;
        while let Some(id) = self.pinned_at(seq, pos) {
            self.checkpoints[id as usize].pinned = false;
            caches.charge(id, Charge::Pinned, false);
            was_pinned = true;
        }
        was_pinned
    }
}
