//! Dropping checkpoints: those that the ladder and the journal no longer want, and the least useful beyond the budget.

use super::{Checkpoint, Timeline};
use crate::ids::{Pos, SeqId};
use crate::memory::Part;
use alloc::boxed::Box;

impl Timeline {
    /// Drops journals out of reach, and checkpoints that neither begin a journal nor are rungs of the ladder.
    pub(super) fn tidy(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) {
        let reach = Pos(end.0.saturating_sub_unsigned(self.params.journal));
        let held = self.lines[seq.index()].held;
        let mut n_read = 0;
        for i in (0..self.lines[seq.index()].len()).rev() {
            let entry = self.lines[seq.index()][i];
            // What lies before an end that is held may be gone back to yet.
            if held.is_some_and(|held| entry.pos <= held) {
                return;
            }
            n_read += u32::from(entry.n_rows > 0);
            // Two whole journals are enough; where forks made many short ones, others need room as well.
            let is_crowded = n_read > 2 && self.free_journals.len() < self.lines.len();
            if is_crowded || entry.pos.0 + entry.n_rows as i32 <= reach.0 {
                self.stop_reading(seq, i);
            }
            let line = &self.lines[seq.index()];
            let is_last = i + 1 == line.len();
            // Where a fork left, two checkpoints can have one position.
            let doubled = line.get(i + 1).is_some_and(|next| next.pos == entry.pos);
            let wanted = line[i].n_rows > 0
                || is_last && self.params.journal > 0
                || self.stays(entry.id)
                || !doubled && self.is_rung(entry.pos, end);
            if !wanted {
                self.remove(seq, i, parts);
            }
        }
    }

    /// Drops the least useful checkpoints until the budget pays for the rest.
    pub(super) fn keep_to_budget(&mut self, parts: &mut [Box<dyn Part>]) {
        let is_paid = |c: &&Checkpoint| c.refs > 0 && c.readers == 0 && !c.anchor;
        let mut n_paid = self.checkpoints.iter().filter(is_paid).count();
        while n_paid > self.sizes.n_paid as usize {
            let Some(id) = self.least_useful() else { return };
            self.remove_everywhere(id, parts);
            n_paid -= 1;
        }
    }

    /// The checkpoint whose loss makes rollbacks least dearer, in proportion to how far they go.
    pub(super) fn least_useful(&self) -> Option<u32> {
        let mut best: Option<(u32, u64)> = None;
        for line in &self.lines {
            for (i, entry) in line.iter().enumerate() {
                let checkpoint = &self.checkpoints[entry.id as usize];
                let is_held = line.held.is_some_and(|held| entry.pos <= held);
                if self.stays(entry.id) || checkpoint.readers > 0 || is_held {
                    continue;
                }
                // A checkpoint can lie at the last position that there is.
                let wide = |pos: Pos| i64::from(pos.0);
                let before = i.checked_sub(1).map_or(0, |i| wide(line[i].pos));
                let end = wide(line.last().map_or(entry.pos, |last| last.pos).max(entry.pos)) + 1;
                let after = line.get(i + 1).map_or(end, |next| wide(next.pos));
                let (gap, distance) = ((after - before) as u64, (end - wide(entry.pos)) as u64);
                let worth = (gap << 20) / distance.max(1);
                if best.is_none_or(|(_, least)| worth < least) {
                    best = Some((entry.id, worth));
                }
            }
        }
        best.map(|(id, _)| id)
    }

    pub(super) fn remove_everywhere(&mut self, id: u32, parts: &mut [Box<dyn Part>]) {
        for seq in (0..self.lines.len() as u32).map(SeqId) {
            if let Some(i) = self.lines[seq.index()].iter().position(|entry| entry.id == id) {
                self.remove(seq, i, parts);
            }
        }
    }

    /// Forgets the rows behind an entry.
    pub(super) fn stop_reading(&mut self, seq: SeqId, i: usize) {
        let entry = &mut self.lines[seq.index()][i];
        if core::mem::take(&mut entry.n_rows) > 0 {
            let checkpoint = &mut self.checkpoints[entry.id as usize];
            checkpoint.readers -= 1;
            if checkpoint.readers == 0 {
                self.free_journals.extend(checkpoint.journal.take());
            }
        }
    }

    pub(super) fn remove(&mut self, seq: SeqId, i: usize, parts: &mut [Box<dyn Part>]) {
        self.stop_reading(seq, i);
        let entry = self.lines[seq.index()].remove(i);
        let checkpoint = &mut self.checkpoints[entry.id as usize];
        checkpoint.refs -= 1;
        if checkpoint.refs == 0 {
            // A journal without rows.
            self.free_journals.extend(checkpoint.journal.take());
            *checkpoint = Checkpoint::default();
            self.free.push(entry.id);
            parts.iter_mut().for_each(|part| part.let_go(entry.id));
        }
    }
}
