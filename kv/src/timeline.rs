//! The way back: which earlier positions of each sequence can be restored, and what that costs.
//!
//! A *checkpoint* is what a memory needs to go on from a position: the recurrent states there, and the cells that
//! windows see from there. Both are shared with the live sequence by reference, so making one copies nothing. A sequence has a
//! list of them, its *line*, in two roles:
//!
//! - The **journal**: each of the last few checkpoints has up to `journal` rows behind it, the inputs of the recurrences
//!   for the tokens that followed. Restoring the checkpoint and stepping the recurrences through some of its rows gives
//!   the state at any position in between, without the network.
//! - The **ladder**: at a distance of x tokens from the end, checkpoints at every `x / 4` to `x / 2` tokens, never
//!   closer than `spacing`. So whatever lies d tokens back is at most `max(d, spacing)` tokens from a checkpoint
//!   before it, and their number grows with the logarithm of the length.
//!
//! Checkpoints are made while a batch is planned, because a state in the middle of a batch is overwritten by the next
//! token: `stage` cuts the plan's runs where one is wanted. They become part of the line when the plan is committed.

mod line;
mod survey;

use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::layer::Sizes;
use crate::memory::Part;
use crate::room;
use crate::split::{Push, Schedule};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

pub(crate) use line::{Entry, Line};

/// What is kept for going back. All of it is allocated with the memory, and touched only when used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineParams {
    /// The most bytes that checkpoints take, those that journals begin at not counted. They are shared by all
    /// sequences; if they run out, the least useful goes.
    pub checkpoint_bytes: u64,
    /// The least distance of checkpoints, in tokens: rolling back d tokens evaluates at most `max(d, spacing)` again.
    /// Rounded up to a multiple of `journal`.
    pub spacing: u32,
    /// How many tokens back every position can be restored without evaluating anything, in models with a recurrent
    /// state; 0: none.
    pub journal: u32,
    /// How many cells older than its window a windowed layer keeps at least, so that going back by so many tokens
    /// costs nothing; at least twice `journal`.
    pub margin: u32,
}

impl Default for TimelineParams {
    /// 256 MiB, every 256 tokens, journals of 32, a margin of 64.
    fn default() -> Self {
        TimelineParams { checkpoint_bytes: 256 << 20, spacing: 256, journal: 32, margin: 64 }
    }
}

impl TimelineParams {
    /// Nothing is kept: going back evaluates everything again, except where cells are still there.
    pub const OFF: TimelineParams =
        TimelineParams { checkpoint_bytes: 0, spacing: 256, journal: 0, margin: 0 };

    /// The same with what the fields promise about each other made true.
    pub(crate) fn settled(self) -> Self {
        let journal = self.journal.min(1 << 16);
        let spacing = self.spacing.clamp(1, 1 << 24).next_multiple_of(journal.max(1));
        TimelineParams { journal, spacing, margin: self.margin.clamp(2 * journal, 1 << 24), ..self }
    }

    /// Checkpoints of a ladder for a sequence of `n_ctx` tokens.
    pub(crate) fn ladder_len(&self, n_ctx: u32) -> u32 {
        2 * (n_ctx / self.spacing.max(1) + 1).ilog2() + 3
    }

    /// Whether a ladder keeps a checkpoint at `pos` while the sequence ends at `end`.
    pub(crate) fn keeps(&self, pos: Pos, end: Pos) -> bool {
        let spacing = i64::from(self.spacing.max(1));
        let distance = i64::from(end.0) - i64::from(pos.0);
        let octave = (distance / spacing).max(1).ilog2();
        // Multiples of a step are multiples of all smaller steps, so what is kept far back was kept before.
        pos.0 > 0 && i64::from(pos.0) % (spacing << octave.saturating_sub(1)) == 0
    }
}

/// How a position is reached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The position of the checkpoint to start from; the wanted position itself if it is still held, 0 if nothing before
    /// it is.
    pub restored_from: Pos,
    /// Tokens whose recurrences are stepped again from the journal.
    pub replayed: u32,
    /// Tokens that have to be evaluated again.
    pub reevaluated: u32,
}

/// Something that can be gone back to.
#[derive(Debug, Default)]
struct Checkpoint {
    /// How many lines it is in.
    refs: u32,
    pinned: bool,
    /// Nothing before it can be made again, so it stays while the sequence lasts.
    anchor: bool,
    /// The journal behind it.
    journal: Option<u32>,
    /// How many lines use rows of the journal.
    readers: u32,
}

/// A line that a plan appends to.
#[derive(Debug)]
struct Saved {
    seq: SeqId,
    len: usize,
    n_rows: u32,
}

/// The lines of all sequences.
#[derive(Debug)]
pub(crate) struct Timeline {
    params: TimelineParams,
    sizes: Sizes,
    checkpoints: Vec<Checkpoint>,
    free: Vec<u32>,
    free_journals: Vec<u32>,
    lines: Vec<Line>,
    /// While a plan is open: where each of its sequences will end.
    ends: Vec<Option<Pos>>,
    saved: Vec<Saved>,
    /// Checkpoints that the plan makes.
    made: Vec<(u32, SeqId, Pos)>,
    /// Checkpoints that got their journal in the plan.
    opened: Vec<u32>,
}

impl Timeline {
    pub fn new(params: TimelineParams, sizes: Sizes, n_seq_max: u32) -> Result<Timeline, Error> {
        let n = n_seq_max as usize;
        let mut checkpoints = Vec::new();
        room::for_len(&mut checkpoints, sizes.n_checkpoints as usize)?;
        checkpoints.resize_with(sizes.n_checkpoints as usize, Checkpoint::default);
        let mut lines: Vec<Line> = (0..n).map(|_| Line::default()).collect();
        for line in &mut lines {
            line.make_room((sizes.n_checkpoints as usize).min(64))?;
        }
        Ok(Timeline {
            params,
            sizes,
            checkpoints,
            free: (0..sizes.n_checkpoints).rev().collect(),
            free_journals: (0..sizes.n_journals).rev().collect(),
            lines,
            ends: room::filled(n, None)?,
            saved: Vec::with_capacity(n),
            made: Vec::with_capacity(sizes.n_checkpoints as usize),
            opened: Vec::with_capacity(sizes.n_journals as usize),
        })
    }

    pub fn line(&self, seq: SeqId) -> &Line {
        &self.lines[seq.index()]
    }

    /// Whether a checkpoint stays until it is unpinned.
    pub fn is_pinned(&self, id: u32) -> bool {
        self.checkpoints[id as usize].pinned
    }

    /// Whether a checkpoint must not be dropped to save room.
    fn stays(&self, id: u32) -> bool {
        let Checkpoint { pinned, anchor, .. } = self.checkpoints[id as usize];
        pinned || anchor
    }

    /// The rows behind a checkpoint: the first of them, if it has a journal.
    pub fn first_row(&self, id: u32) -> Option<u32> {
        Some(self.checkpoints[id as usize].journal? * self.params.journal)
    }

    /// Whether any checkpoint can ever be made.
    fn is_off(&self) -> bool {
        self.checkpoints.is_empty()
    }

    // -- Planning ----------------------------------------------------------------------------------------------------

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

    /// Whether the tokens from `pos` on are journaled: those of the last whole and the current `journal` positions.
    fn is_journaled(&self, seqs: &[SeqId], pos: Pos) -> bool {
        let [lead, ..] = seqs else { return false };
        let unit = self.params.journal as i32;
        let (Some(end), true) = (self.ends[lead.index()], self.sizes.n_journals > 0) else { return false };
        pos.0 >= (end.0 - 1) / unit * unit - unit
    }

    /// Whether a run must be cut at `pos`, which is a candidate.
    fn wants(&self, seqs: &[SeqId], pos: Pos) -> bool {
        let end = seqs.first().and_then(|lead| self.ends[lead.index()]);
        self.is_journaled(seqs, pos) || end.is_some_and(|end| self.is_rung(pos, end))
    }

    /// Whether a ladder has a checkpoint at `pos`.
    fn is_rung(&self, pos: Pos, end: Pos) -> bool {
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
        let rung = self.ends[lead.index()].is_some_and(|end| self.is_rung(pos, end));
        if !(journaled || rung && here.is_none()) {
            return Ok((None, None));
        }
        if self.free.len() <= spare {
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
            checkpoint.journal = Some(self.free_journals.pop()?);
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
        let grew = !self.made.is_empty();
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

    // -- Thinning ----------------------------------------------------------------------------------------------------

    /// Drops journals out of reach, and checkpoints that neither begin a journal nor are rungs of the ladder.
    fn tidy(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) {
        let mut reach = 0;
        for i in (0..self.lines[seq.index()].len()).rev() {
            let entry = self.lines[seq.index()][i];
            if reach >= self.params.journal {
                self.stop_reading(seq, i);
            }
            reach += entry.n_rows;
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
    fn keep_to_budget(&mut self, parts: &mut [Box<dyn Part>]) {
        let is_paid = |c: &&Checkpoint| c.refs > 0 && c.readers == 0 && !c.anchor;
        let mut n_paid = self.checkpoints.iter().filter(is_paid).count();
        while n_paid > self.sizes.n_paid as usize {
            let Some(id) = self.least_useful() else { return };
            self.remove_everywhere(id, parts);
            n_paid -= 1;
        }
    }

    /// The checkpoint whose loss makes rollbacks least dearer, in proportion to how far they go.
    fn least_useful(&self) -> Option<u32> {
        let mut best: Option<(u32, u64)> = None;
        for line in &self.lines {
            for (i, entry) in line.iter().enumerate() {
                let checkpoint = &self.checkpoints[entry.id as usize];
                if self.stays(entry.id) || checkpoint.readers > 0 {
                    continue;
                }
                let before = i.checked_sub(1).map_or(0, |i| line[i].pos.0);
                let end = line.last().map_or(entry.pos, |last| last.pos).0.max(entry.pos.0) + 1;
                let after = line.get(i + 1).map_or(end, |next| next.pos.0);
                let (gap, distance) = ((after - before) as u64, (end - entry.pos.0) as u64);
                let worth = (gap << 20) / distance.max(1);
                if best.is_none_or(|(_, least)| worth < least) {
                    best = Some((entry.id, worth));
                }
            }
        }
        best.map(|(id, _)| id)
    }

    fn remove_everywhere(&mut self, id: u32, parts: &mut [Box<dyn Part>]) {
        for seq in (0..self.lines.len() as u32).map(SeqId) {
            if let Some(i) = self.lines[seq.index()].iter().position(|entry| entry.id == id) {
                self.remove(seq, i, parts);
            }
        }
    }

    /// Forgets the rows behind an entry.
    fn stop_reading(&mut self, seq: SeqId, i: usize) {
        let entry = &mut self.lines[seq.index()][i];
        if core::mem::take(&mut entry.n_rows) > 0 {
            let checkpoint = &mut self.checkpoints[entry.id as usize];
            checkpoint.readers -= 1;
            if checkpoint.readers == 0 {
                self.free_journals.extend(checkpoint.journal.take());
            }
        }
    }

    fn remove(&mut self, seq: SeqId, i: usize, parts: &mut [Box<dyn Part>]) {
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

    // -- Operations --------------------------------------------------------------------------------------------------

    /// The sequence ends at `end` now: what lies behind goes.
    pub fn truncate(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) {
        while let Some(last) = self.lines[seq.index()].last() {
            let (i, keep) = (self.lines[seq.index()].len() - 1, (end.0 - last.pos.0).max(0) as u32);
            if last.pos > end {
                self.remove(seq, i, parts);
            } else {
                if keep == 0 {
                    self.stop_reading(seq, i);
                } else if last.n_rows > keep {
                    self.lines[seq.index()][i].n_rows = keep;
                }
                return;
            }
        }
    }

    /// Forgets the way back of a sequence, because it holds something else now.
    pub fn forget(&mut self, seq: SeqId, parts: &mut [Box<dyn Part>]) {
        while let Some(last) = self.lines[seq.index()].len().checked_sub(1) {
            self.remove(seq, last, parts);
        }
    }

    /// Gives `dst`, which has none, the way back of `src`.
    pub fn share(&mut self, src: SeqId, dst: SeqId) -> Result<(), Error> {
        let mut copy = core::mem::take(&mut self.lines[dst.index()]);
        let room = copy.copy_from(&self.lines[src.index()]);
        for entry in copy.iter() {
            let checkpoint = &mut self.checkpoints[entry.id as usize];
            checkpoint.refs += 1;
            checkpoint.readers += u32::from(entry.n_rows > 0);
        }
        self.lines[dst.index()] = copy;
        room
    }

    /// Makes sure that `share` has room.
    pub fn make_room(&mut self, src: SeqId, dst: SeqId) -> Result<(), Error> {
        let len = self.lines[src.index()].len();
        self.lines[dst.index()].make_room(len)
    }

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
        self.hold(seq, end, parts)?;
        self.keep_to_budget(parts);
        Ok(())
    }

    /// As `pin`, whatever the budget; false if it was pinned, or needs no pin.
    pub fn hold(&mut self, seq: SeqId, end: Pos, parts: &mut [Box<dyn Part>]) -> Result<bool, Error> {
        if end == Pos::ZERO || !self.sizes.needed {
            return Ok(false);
        }
        match self.tip(seq, end, parts)? {
            Some(id) => Ok(!core::mem::replace(&mut self.checkpoints[id as usize].pinned, true)),
            None => self.no_pin().map(|()| false),
        }
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
        let entry = self.lines[seq.index()].iter().find(|entry| entry.pos == pos && self.is_pinned(entry.id));
        let Some(id) = entry.map(|entry| entry.id) else { return false };
        self.checkpoints[id as usize].pinned = false;
        true
    }
}

#[cfg(any(test, feature = "oracle"))]
impl Timeline {
    /// Says what does not add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        let mut refs = alloc::vec![0; self.checkpoints.len()];
        let mut readers = refs.clone();
        for entry in self.lines.iter().flat_map(|line| line.iter()) {
            refs[entry.id as usize] += 1;
            readers[entry.id as usize] += u32::from(entry.n_rows > 0);
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..refs.len() as u32).filter(|&id| refs[id as usize] == 0);
        let journals = self.checkpoints.iter().filter(|c| c.journal.is_some()).count();
        let wrong = if !self.checkpoints.iter().map(|c| c.refs).eq(refs.iter().copied()) {
            "checkpoints are counted wrong"
        } else if !self.checkpoints.iter().map(|c| c.readers).eq(readers.iter().copied()) {
            "readers of journals are counted wrong"
        } else if !unused.eq(free.iter().copied()) {
            "free checkpoints are in use"
        } else if journals + self.free_journals.len() != self.sizes.n_journals as usize {
            "journals are lost"
        } else if self.checkpoints.iter().any(|c| c.readers > 0 && c.journal.is_none()) {
            "rows without a journal"
        } else if !self.lines.iter().all(Line::is_in_order) {
            "a line is out of order"
        } else if self.saved.len() + self.made.len() + self.opened.len() > 0 {
            "a plan left something behind"
        } else {
            return Ok(());
        };
        Err(alloc::format!("{wrong}: {:?}", self.lines))
    }
}
