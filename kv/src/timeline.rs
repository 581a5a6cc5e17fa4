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

mod adopt;
mod line;
mod pins;
mod stage;
mod survey;
mod thin;

use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::layer::Sizes;
use crate::memory::Part;
use crate::room;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use adopt::Adopted;
pub(crate) use line::{Entry, Line};

/// What is kept for going back. All of it is allocated with the memory, and touched only when used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Return the same with another [`checkpoint_bytes`](#structfield.checkpoint_bytes).
    #[must_use]
    pub fn checkpoint_bytes(self, checkpoint_bytes: u64) -> Self {
        TimelineParams { checkpoint_bytes, ..self }
    }

    /// Return the same with another [`spacing`](#structfield.spacing).
    #[must_use]
    pub fn spacing(self, spacing: u32) -> Self {
        TimelineParams { spacing, ..self }
    }

    /// Return the same with another [`journal`](#structfield.journal).
    #[must_use]
    pub fn journal(self, journal: u32) -> Self {
        TimelineParams { journal, ..self }
    }

    /// Return the same with another [`margin`](#structfield.margin).
    #[must_use]
    pub fn margin(self, margin: u32) -> Self {
        TimelineParams { margin, ..self }
    }

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
#[non_exhaustive]
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
    /// Whether the plan found no checkpoint or journal where it wanted one.
    short: bool,
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
            short: false,
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

    /// Rows of all journals.
    pub fn n_rows(&self) -> u32 {
        self.sizes.n_journals.saturating_mul(self.params.journal)
    }

    /// Whether any checkpoint can ever be made.
    fn is_off(&self) -> bool {
        self.checkpoints.is_empty()
    }

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
        self.lines[seq.index()].held = None;
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
}

#[cfg(any(test, feature = "oracle"))]
impl Timeline {
    fn overruns(&self, entry: &Entry) -> bool {
        let unit = self.params.journal.max(1);
        entry.n_rows > 0 && entry.pos.0 as u32 % unit + entry.n_rows > unit
    }

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
        } else if self.lines.iter().flat_map(|line| line.iter()).any(|entry| self.overruns(entry)) {
            "a journal reaches past the next multiple of its length"
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
