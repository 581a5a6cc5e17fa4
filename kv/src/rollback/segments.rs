//! Making checkpoints while a batch is planned: where segments are cut, and which tokens are
//! journaled.
//!
//! No journal reaches past a multiple of its length, so that forks of a sequence cut at the same
//! positions.

use super::checkpoints::{Checkpoint, Checkpoints, ListedCheckpoint, Saved};
use crate::batch::Batch;
use crate::batch::split::{Push, SplitBatch};
use crate::cache::Caches;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;
use core::ops::Range;

impl Checkpoints {
    /// Cut the segments of a plan where checkpoints are made, and assign journal rows to tokens.
    ///
    /// A lack of free checkpoints is no error: fewer are made then.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a list cannot grow.
    pub fn stage(&mut self, batch: &Batch, split_batch: &mut SplitBatch) -> Result<(), Error> {
        if !self.sizes.needed {
            return Ok(());
        }
        for segment in split_batch.segments() {
            let Some(token) = split_batch.tokens()[segment.tokens.clone()].last() else { continue };
            for &seq in batch.seqs(token.index as usize) {
                if self.ends[seq.index()].replace(Pos(token.pos.0 + 1)).is_none() {
                    reserve::for_more(&mut self.saved, 1)?;
                    let list = &self.lists[seq.index()];
                    self.saved.push(Saved {
                        seq,
                        len: list.len(),
                        n_rows: list.last().map_or(0, |e| e.n_rows),
                    });
                }
            }
        }
        split_batch.cut(|tokens, mut push| {
            let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Ok(()) };
            let seqs = batch.seqs(first.index as usize);
            self.cut(seqs, first.pos..Pos(last.pos.0 + 1), &mut push)
        })
    }

    /// Cut one segment: call `push` with the number of tokens of each new segment, its checkpoint
    /// and its first journal row.
    fn cut(&mut self, seqs: &[SeqId], segment: Range<Pos>, push: &mut Push<'_>) -> Result<(), Error> {
        let mut start = segment.start;
        while start < segment.end {
            let (checkpoint, row) = self.enter(seqs, start)?;
            let mut end = self.next_candidate(start);
            while end < segment.end && !self.is_journaled(seqs, end) && !self.is_wanted(seqs, end) {
                end = self.next_candidate(end);
            }
            end = end.min(segment.end);
            let n_tokens = (end.0 - start.0) as u32;
            if row.is_some() {
                self.log(seqs, n_tokens);
            }
            push(n_tokens as usize, checkpoint, row)?;
            start = end;
        }
        Ok(())
    }

    /// Return the next position after `pos` at which a checkpoint may be wanted.
    fn next_candidate(&self, pos: Pos) -> Pos {
        let unit = if self.params.journal == 0 { self.params.spacing } else { self.params.journal };
        Pos((pos.0 / unit as i32 + 1).saturating_mul(unit as i32))
    }

    /// Return the ends of sequences after the plan. Sequences of one token can diverge later in the
    /// plan.
    fn ends_of(&self, seqs: &[SeqId]) -> impl Iterator<Item = Pos> {
        seqs.iter().filter_map(|seq| self.ends[seq.index()])
    }

    /// Return true if the tokens from `pos` on are journaled.
    ///
    /// Those are the tokens of the current `journal` positions, up to the end, and of the last
    /// `journal` positions before them.
    fn is_journaled(&self, seqs: &[SeqId], pos: Pos) -> bool {
        let unit = self.params.journal as i32;
        let is_near = |end: Pos| self.sizes.n_journals > 0 && pos.0 >= (end.0 - 1) / unit * unit - unit;
        self.ends_of(seqs).any(is_near)
    }

    /// Return true if the checkpoint schedule wants a checkpoint of some of `seqs` at `pos`.
    fn is_wanted(&self, seqs: &[SeqId], pos: Pos) -> bool {
        self.ends_of(seqs).any(|end| self.is_scheduled(pos, end))
    }

    /// Return true if the checkpoint schedule wants a checkpoint at `pos` while the sequence ends
    /// at `end`.
    pub fn is_scheduled(&self, pos: Pos, end: Pos) -> bool {
        self.sizes.n_paid > 0 && self.params.keeps(pos, end)
    }

    /// Begin a segment at `pos`: return the checkpoint to make there, and the journal row of its
    /// first token.
    ///
    /// The journal of the last checkpoint goes on if it has room and belongs to these sequences
    /// alone. Otherwise a new checkpoint is made if journal or schedule wants one.
    fn enter(&mut self, seqs: &[SeqId], pos: Pos) -> Result<(Option<u32>, Option<u32>), Error> {
        let [lead, ..] = seqs else { return Ok((None, None)) };
        // These stay free for `hold` and `floor`.
        let spare = 2 * self.lists.len();
        let journaled = self.is_journaled(seqs, pos);
        let unit = self.params.journal.max(1) as i32;
        let last = self.lists[lead.index()].last().copied();
        let here = last.filter(|e| e.pos == pos);
        if journaled
            && let Some(e) = last
            && e.pos.0 + e.n_rows as i32 == pos.0
            && (here.is_some() || pos.0 % unit != 0)
            && e.n_rows < self.params.journal
            && self.is_own(seqs, e)
        {
            let row = self.journal_of(e.id).map(|journal| journal * self.params.journal + e.n_rows);
            return Ok((None, row));
        }
        if !(journaled || here.is_none() && self.is_wanted(seqs, pos)) {
            return Ok((None, None));
        }
        if self.free.len() <= spare {
            self.short = true;
            return Ok((None, None));
        }
        let Some(id) = self.take(seqs, pos)? else { return Ok((None, None)) };
        let row = if journaled { self.journal_of(id) } else { None };
        Ok((Some(id), row.map(|journal| journal * self.params.journal)))
    }

    /// Return true if an entry is the last of all `seqs` and no other list names it, so that its
    /// journal may go on.
    fn is_own(&self, seqs: &[SeqId], entry: ListedCheckpoint) -> bool {
        self.checkpoints[entry.id as usize].refs as usize == seqs.len()
            && seqs.iter().all(|seq| self.lists[seq.index()].last() == Some(&entry))
    }

    /// Return the journal of a checkpoint, which gets a free one if it has none.
    fn journal_of(&mut self, id: u32) -> Option<u32> {
        let checkpoint = &mut self.checkpoints[id as usize];
        if checkpoint.journal.is_none() {
            let Some(journal) = self.free_journals.pop() else {
                self.short = true;
                return None;
            };
            checkpoint.journal = Some(journal);
            self.opened.push(id);
        }
        checkpoint.journal
    }

    /// Append a new checkpoint to the lists of `seqs`; return `None` if none is free.
    fn take(&mut self, seqs: &[SeqId], pos: Pos) -> Result<Option<u32>, Error> {
        for seq in seqs {
            reserve::for_more(&mut self.lists[seq.index()], 1)?;
        }
        let ([lead, ..], Some(id)) = (seqs, self.free.pop()) else { return Ok(None) };
        self.checkpoints[id as usize] = Checkpoint { refs: seqs.len() as u32, ..Checkpoint::default() };
        for seq in seqs {
            self.lists[seq.index()].push(ListedCheckpoint { id, pos, n_rows: 0 });
        }
        self.made.push((id, *lead, pos));
        Ok(Some(id))
    }

    /// Note that `n` tokens are journaled behind the last entry.
    fn log(&mut self, seqs: &[SeqId], n: u32) {
        for seq in seqs {
            if let Some(last) = self.lists[seq.index()].last_mut() {
                if last.n_rows == 0 {
                    self.checkpoints[last.id as usize].readers += 1;
                }
                last.n_rows += n;
            }
        }
    }

    /// Remove what `stage` added.
    pub fn undo(&mut self) {
        for Saved { seq, len, n_rows } in self.saved.drain(..) {
            self.ends[seq.index()] = None;
            let list = &mut self.lists[seq.index()];
            list.truncate(len);
            if let Some(last) = list.last_mut() {
                if n_rows == 0 && last.n_rows > 0 {
                    self.checkpoints[last.id as usize].readers -= 1;
                }
                last.n_rows = n_rows;
            }
        }
        for id in self.opened.drain(..) {
            self.free_journals.extend(self.checkpoints[id as usize].journal.take());
        }
        for (id, ..) in self.made.drain(..) {
            self.checkpoints[id as usize] = Checkpoint::default();
            self.free.push(id);
        }
    }

    /// Keep what `stage` added, let the caches retain the cells of new checkpoints, and drop
    /// checkpoints that are not wanted any more.
    pub fn commit(&mut self, caches: &mut Caches) {
        // A checkpoint that could not be made may find room next time.
        let grew = !self.made.is_empty() || core::mem::take(&mut self.short);
        for (id, seq, pos) in self.made.drain(..) {
            caches.hold_cells(id, seq, pos);
        }
        self.opened.clear();
        for i in 0..self.saved.len() {
            let seq = self.saved[i].seq;
            let end = self.ends[seq.index()].take();
            if let Some(end) = end.filter(|_| grew) {
                self.tidy(seq, end, caches);
            }
        }
        self.saved.clear();
        if grew {
            self.keep_to_budget(caches);
        }
    }
}
