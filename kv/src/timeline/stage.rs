//! Making checkpoints while a batch is planned: where runs are cut, and which tokens are journaled.

use super::{Checkpoint, Entry, Saved, Timeline};
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::memory::Part;
use crate::room;
use crate::split::{Push, Schedule};
use alloc::boxed::Box;
use core::ops::Range;

impl Timeline {
    /// Cuts the runs of a plan where checkpoints are made, and says which tokens are journaled where. Never fails for
    /// lack of checkpoints: then fewer are made.
    pub fn stage(&mut self, batch: &Batch, schedule: &mut Schedule) -> Result<(), Error> {
        if self.is_off() {
            return Ok(());
        }
        for run in schedule.runs() {
            let Some(token) = schedule.tokens()[run.tokens.clone()].last() else { continue };
            for &seq in batch.seqs(token.index as usize) {
                if self.ends[seq.index()].replace(Pos(token.pos.0 + 1)).is_none() {
                    room::for_one(&mut self.saved)?;
                    let line = &self.lines[seq.index()];
                    self.saved.push(Saved {
                        seq,
                        len: line.len(),
                        n_rows: line.last().map_or(0, |e| e.n_rows),
                    });
                }
            }
        }
        schedule.cut(|tokens, mut push| {
            let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Ok(()) };
            let seqs = batch.seqs(first.index as usize);
            self.cut(seqs, first.pos..Pos(last.pos.0 + 1), &mut push)
        })
    }

    /// Cuts one run: calls `push` with the number of tokens of each piece, its checkpoint and its first row.
    fn cut(&mut self, seqs: &[SeqId], run: Range<Pos>, push: &mut Push<'_>) -> Result<(), Error> {
        let mut start = run.start;
        let mut piece = self.enter(seqs, start)?;
        let mut next = start;
        while start < run.end {
            next = self.next_candidate(next).min(run.end);
            let cut = if next < run.end { self.wants(seqs, next) } else { true };
            if !cut {
                continue;
            }
            let n_tokens = (next.0 - start.0) as u32;
            if piece.1.is_some() {
                self.log(seqs, n_tokens);
            }
            push(n_tokens as usize, piece.0, piece.1)?;
            start = next;
            if start < run.end {
                piece = self.enter(seqs, start)?;
            }
        }
        Ok(())
    }

    /// The next position at which a checkpoint may be wanted.
    fn next_candidate(&self, pos: Pos) -> Pos {
        let unit = if self.params.journal == 0 { self.params.spacing } else { self.params.journal };
        Pos((pos.0 / unit as i32 + 1).saturating_mul(unit as i32))
    }

    /// Where sequences will end: those of one token can part later in the plan.
    fn ends_of(&self, seqs: &[SeqId]) -> impl Iterator<Item = Pos> {
        seqs.iter().filter_map(|seq| self.ends[seq.index()])
    }

    /// Whether the tokens from `pos` on are journaled: those of the last whole and the current `journal` positions.
    fn is_journaled(&self, seqs: &[SeqId], pos: Pos) -> bool {
        let unit = self.params.journal as i32;
        let is_near = |end: Pos| self.sizes.n_journals > 0 && pos.0 >= (end.0 - 1) / unit * unit - unit;
        self.ends_of(seqs).any(is_near)
    }

    /// Whether a run must be cut at `pos`, which is a candidate.
    fn wants(&self, seqs: &[SeqId], pos: Pos) -> bool {
        self.is_journaled(seqs, pos) || self.ends_of(seqs).any(|end| self.is_rung(pos, end))
    }

    /// Whether a ladder has a checkpoint at `pos`.
    pub(super) fn is_rung(&self, pos: Pos, end: Pos) -> bool {
        self.sizes.n_paid > 0 && self.params.keeps(pos, end)
    }

    /// Begins a piece at `pos`: the checkpoint to make there, and the row of its first token.
    fn enter(&mut self, seqs: &[SeqId], pos: Pos) -> Result<(Option<u32>, Option<u32>), Error> {
        let [lead, ..] = seqs else { return Ok((None, None)) };
        // Some stay free for `hold` and `anchor`.
        let spare = 2 * self.lines.len();
        let journaled = self.is_journaled(seqs, pos);
        let unit = self.params.journal.max(1) as i32;
        let last = self.lines[lead.index()].last().copied();
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
        let rung = self.ends_of(seqs).any(|end| self.is_rung(pos, end));
        if !(journaled || rung && here.is_none()) {
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

    /// Whether an entry is the last of all `seqs` and of nobody else, so that its journal may go on.
    fn is_own(&self, seqs: &[SeqId], entry: Entry) -> bool {
        self.checkpoints[entry.id as usize].refs as usize == seqs.len()
            && seqs.iter().all(|seq| self.lines[seq.index()].last() == Some(&entry))
    }

    /// The journal of a checkpoint, which gets one if it has none and there is one.
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

    /// A new checkpoint at the end of the lines of `seqs`.
    fn take(&mut self, seqs: &[SeqId], pos: Pos) -> Result<Option<u32>, Error> {
        for seq in seqs {
            self.lines[seq.index()].make_room_for_one()?;
        }
        let ([lead, ..], Some(id)) = (seqs, self.free.pop()) else { return Ok(None) };
        self.checkpoints[id as usize] = Checkpoint { refs: seqs.len() as u32, ..Checkpoint::default() };
        for seq in seqs {
            self.lines[seq.index()].push(Entry { id, pos, n_rows: 0 });
        }
        self.made.push((id, *lead, pos));
        Ok(Some(id))
    }

    /// Notes that `n` tokens are journaled behind the last entry.
    fn log(&mut self, seqs: &[SeqId], n: u32) {
        for seq in seqs {
            if let Some(last) = self.lines[seq.index()].last_mut() {
                if last.n_rows == 0 {
                    self.checkpoints[last.id as usize].readers += 1;
                }
                last.n_rows += n;
            }
        }
    }

    /// Takes back what was staged.
    pub fn undo(&mut self) {
        for i in 0..self.saved.len() {
            let Saved { seq, len, n_rows } = self.saved[i];
            self.ends[seq.index()] = None;
            while self.lines[seq.index()].len() > len {
                self.lines[seq.index()].pop();
            }
            if let Some(last) = self.lines[seq.index()].last_mut() {
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

    /// Keeps what was staged, lets the parts hold what the new checkpoints need, and drops what is no longer wanted.
    pub fn commit(&mut self, parts: &mut [Box<dyn Part>]) {
        for (id, seq, pos) in self.made.iter().copied() {
            parts.iter_mut().for_each(|part| part.hold(id, seq, pos));
        }
        // What could not be made may find room next time.
        let grew = !self.made.is_empty() || core::mem::take(&mut self.short);
        self.made.clear();
        self.opened.clear();
        for i in 0..self.saved.len() {
            let seq = self.saved[i].seq;
            let end = self.ends[seq.index()].take();
            if let Some(end) = end.filter(|_| grew) {
                self.tidy(seq, end, parts);
            }
        }
        self.saved.clear();
        if grew {
            self.keep_to_budget(parts);
        }
    }
}
