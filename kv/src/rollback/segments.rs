//! Making checkpoints while a batch is planned: where segments are cut, and which tokens are
//! journaled.
//!
//! No journal reaches past a multiple of its length, so that forks of a sequence cut at the same
//! positions.

use super::checkpoints::{Checkpoint, Checkpoints, Saved};
use super::list::ListedCheckpoint;
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
        if !self.is_needed() {
            return Ok(());
        }
        for segment in split_batch.segments() {
            let Some(token) = split_batch.tokens()[segment.tokens.clone()].last() else { continue };
            for &seq in batch.seqs(token.index as usize) {
                if self.ends[seq.index()].replace(Pos(token.pos.0 + 1)).is_none() {
                    reserve::for_one(&mut self.saved)?;
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
        let mut piece = self.enter(seqs, start)?;
        let mut next = start;
        while start < segment.end {
            next = self.next_candidate(next).min(segment.end);
            let cut = if next < segment.end { self.wants(seqs, next) } else { true };
            if !cut {
                continue;
            }
            let n_tokens = (next.0 - start.0) as u32;
            if piece.1.is_some() {
                self.log(seqs, n_tokens);
            }
            push(n_tokens as usize, piece.0, piece.1)?;
            start = next;
            if start < segment.end {
                piece = self.enter(seqs, start)?;
            }
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

    /// Return true if a segment must be cut at `pos`, which is a candidate.
    fn wants(&self, seqs: &[SeqId], pos: Pos) -> bool {
        self.is_journaled(seqs, pos) || self.ends_of(seqs).any(|end| self.is_scheduled(pos, end))
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
        let scheduled = self.ends_of(seqs).any(|end| self.is_scheduled(pos, end));
        if !(journaled || scheduled && here.is_none()) {
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
            self.lists[seq.index()].make_room_for_one()?;
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
        for i in 0..self.saved.len() {
            let Saved { seq, len, n_rows } = self.saved[i];
            self.ends[seq.index()] = None;
            while self.lists[seq.index()].len() > len {
                self.lists[seq.index()].pop();
            }
            if let Some(last) = self.lists[seq.index()].last_mut() {
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
        self.saved.clear();
    }

    /// Keep what `stage` added, let the caches retain the cells of new checkpoints, and drop
    /// checkpoints that are not wanted any more.
    pub fn commit(&mut self, caches: &mut Caches) {
        for (id, seq, pos) in self.made.iter().copied() {
            caches.hold_cells(id, seq, pos);
        }
        // A checkpoint that could not be made may find room next time.
        let grew = !self.made.is_empty() || core::mem::take(&mut self.short);
        self.made.clear();
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
