//! Dropping checkpoints: those that neither schedule nor journal want any more, and the least
//! useful ones beyond the budget.

use super::checkpoints::{Checkpoint, Checkpoints, ListedCheckpoint};
use crate::cache::Caches;
use crate::cache::charges::Charge;
use crate::ids::{Pos, SeqId};

impl Checkpoints {
    /// Drop the journals that are out of reach, and the checkpoints that neither begin a journal
    /// nor are scheduled.
    pub fn tidy(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) {
        let reach = Pos(end.0.saturating_sub_unsigned(self.params.journal));
        let held = self.held[seq.index()];
        let mut n_read = 0;
        for i in (0..self.lists[seq.index()].len()).rev() {
            let entry = self.lists[seq.index()][i];
            // A savepoint may return to its end and to anything before it.
            if held.is_some_and(|held| entry.pos <= held) {
                return;
            }
            n_read += u32::from(entry.n_rows > 0);
            // Two full journals are enough. After forks made many short ones, other sequences need
            // journals too.
            let is_crowded = n_read > 2 && self.free_journals.len() < self.lists.len();
            if is_crowded || entry.pos.0 + entry.n_rows as i32 <= reach.0 {
                self.stop_reading(seq, i);
            }
            let list = &self.lists[seq.index()];
            let is_last = i + 1 == list.len();
            // Where a fork diverged, two checkpoints can have one position.
            let doubled = list.get(i + 1).is_some_and(|next| next.pos == entry.pos);
            let wanted = list[i].n_rows > 0
                || is_last && self.params.journal > 0
                || self.stays(entry.id)
                || !doubled && self.is_scheduled(entry.pos, end);
            if !wanted {
                self.remove(seq, i, caches);
            }
        }
    }

    /// Drop the least useful checkpoints until the budget pays for the rest.
    pub fn keep_to_budget(&mut self, caches: &mut Caches) {
        let mut n_paid = 0;
        let retain_cells = caches.has_windows();
        for (id, c) in (0..).zip(&self.checkpoints) {
            let is_paid = c.refs > 0 && c.readers == 0 && !c.floor;
            n_paid += u32::from(is_paid);
            if retain_cells {
                caches.charge(id, Charge::Paid, is_paid);
            }
        }
        while n_paid > self.sizes.n_paid || caches.exceeds(Charge::Paid) {
            let Some(id) = self.least_useful() else { return };
            self.remove_everywhere(id, caches);
            n_paid -= 1;
        }
    }

    /// Return the checkpoint whose loss makes rollbacks least expensive, in proportion to their
    /// distance.
    ///
    /// The worth of a checkpoint is the gap between its neighbours, divided by its distance from
    /// the end.
    pub(super) fn least_useful(&self) -> Option<u32> {
        let mut best: Option<(u32, u64)> = None;
        for list in &self.lists {
            for (i, entry) in list.iter().enumerate() {
                if self.stays(entry.id) || self.checkpoints[entry.id as usize].readers > 0 {
                    continue;
                }
                // 64 bits, since a checkpoint can lie at the last position that exists.
                let wide = |pos: Pos| i64::from(pos.0);
                let before = i.checked_sub(1).map_or(0, |i| wide(list[i].pos));
                let end = wide(list.last().map_or(entry.pos, |last| last.pos).max(entry.pos)) + 1;
                let after = list.get(i + 1).map_or(end, |next| wide(next.pos));
                let (gap, distance) = ((after - before) as u64, (end - wide(entry.pos)) as u64);
                let worth = (gap << 20) / distance.max(1);
                if best.is_none_or(|(_, least)| worth < least) && !self.is_held(*entry) {
                    best = Some((entry.id, worth));
                }
            }
        }
        best.map(|(id, _)| id)
    }

    /// Return true if a savepoint may return one of the sequences of a checkpoint to it.
    fn is_held(&self, entry: ListedCheckpoint) -> bool {
        let mut held = self.lists.iter().zip(&self.held).filter(|(_, held)| **held >= Some(entry.pos));
        held.any(|(list, _)| list.iter().any(|other| other.id == entry.id))
    }

    /// Drop a checkpoint from all lists.
    pub(super) fn remove_everywhere(&mut self, id: u32, caches: &mut Caches) {
        for seq in (0..self.lists.len() as u32).map(SeqId) {
            if let Some(i) = self.lists[seq.index()].iter().position(|entry| entry.id == id) {
                self.remove(seq, i, caches);
            }
        }
    }

    /// Forget the journal rows behind an entry; the last reader frees the journal.
    pub(super) fn stop_reading(&mut self, seq: SeqId, i: usize) {
        let entry = &mut self.lists[seq.index()][i];
        if core::mem::take(&mut entry.n_rows) > 0 {
            let checkpoint = &mut self.checkpoints[entry.id as usize];
            checkpoint.readers -= 1;
            if checkpoint.readers == 0 {
                self.free_journals.extend(checkpoint.journal.take());
            }
        }
    }

    /// Remove an entry from a list; the last list frees the checkpoint.
    pub(super) fn remove(&mut self, seq: SeqId, i: usize, caches: &mut Caches) {
        self.stop_reading(seq, i);
        let entry = self.lists[seq.index()].remove(i);
        let checkpoint = &mut self.checkpoints[entry.id as usize];
        checkpoint.refs -= 1;
        if checkpoint.refs == 0 {
            // A journal without rows has no readers, so `stop_reading` did not free it.
            self.free_journals.extend(checkpoint.journal.take());
            *checkpoint = Checkpoint::default();
            self.free.push(entry.id);
            caches.drop_checkpoint(entry.id);
        }
    }
}
