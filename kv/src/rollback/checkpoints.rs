//! Checkpoints of all sequences.
//!
//! Each sequence has a list of checkpoints, which serve two purposes:
//!
//! - **Journal**: each of the last few checkpoints has up to `journal` rows behind it, the inputs
//!   of the recurrences for the tokens that followed. Restoring the checkpoint and replaying some
//!   of its rows gives the state at any position in between, without running the model.
//! - **Checkpoint schedule**: at a distance of x tokens from the end, there is a checkpoint every
//!   `x / 4` to `x / 2` tokens, but never closer than `spacing`. A position d tokens back is
//!   therefore at most `max(d, spacing)` tokens after a checkpoint, and the number of checkpoints
//!   grows with the logarithm of the length.
//!
//! Three more kinds stay at the end of a sequence: pins of the caller, the rollback floor behind
//! tokens that are not known, and the end that a savepoint retains.
//!
//! Checkpoints are made while a batch is planned, because the next token overwrites a state in the
//! middle of a batch: `stage` cuts the segments of a plan where one is wanted. The commit of the
//! plan makes them permanent.

use crate::cache::Caches;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::params::{RollbackParams, Sizes};
use crate::reserve;
use alloc::vec::Vec;

/// Entries for which each list has room from the start, and behind each pin.
pub(super) const LIST_ROOM: usize = 64;

/// Checkpoint of the memory, named by its number. Forks share it: their lists name the same number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoint {
    /// Number of lists that name it; 0 if it is free.
    pub refs: u32,
    /// True if the caller pinned it, so that it stays until it is unpinned.
    pub pinned: bool,
    /// True if it is a rollback floor: tokens before it are not known, so it stays as long as the
    /// sequence, or until a later floor takes its place.
    pub floor: bool,
    /// Journal behind it.
    pub journal: Option<u32>,
    /// Number of lists that use rows of the journal.
    pub readers: u32,
}

/// Entry of a list: a checkpoint at a position of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedCheckpoint {
    /// Number of the checkpoint.
    pub id: u32,
    /// Position of the token that follows the checkpoint.
    pub pos: Pos,
    /// Number of the tokens that follow whose inputs its journal holds for this sequence.
    pub n_rows: u32,
}

/// Former end of a list that a plan appends to.
#[derive(Debug)]
pub(super) struct Saved {
    /// Sequence of the list.
    pub(super) seq: SeqId,
    /// Number of entries before the plan.
    pub(super) len: usize,
    /// Journal rows of the last entry before the plan.
    pub(super) n_rows: u32,
}

/// Lists of all sequences, and the checkpoints and journals that they name.
///
/// A checkpoint is free, or named by as many lists as its `refs` count. A journal is free, or
/// belongs to one checkpoint. A plan adds entries to the lists at once and logs them, so that
/// `undo` removes them again.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Rollback parameters in force.
    pub(super) params: RollbackParams,
    /// Numbers of checkpoints and journals.
    pub sizes: Sizes,
    /// Checkpoints by number, free ones included.
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Free checkpoints; the last one is taken first.
    pub(super) free: Vec<u32>,
    /// Free journals.
    pub free_journals: Vec<u32>,
    /// Checkpoints of each sequence, ascending by position. The journal of an entry never reaches
    /// past the position of the next entry. Two entries can have one position, where a fork
    /// diverged.
    pub(super) lists: Vec<Vec<ListedCheckpoint>>,
    /// End of each sequence that a savepoint retains while a batch is computed; no checkpoint up to
    /// it is dropped.
    pub(super) held: Vec<Option<Pos>>,
    /// End of each sequence after the open plan; `None` for sequences that are not in it.
    pub(super) ends: Vec<Option<Pos>>,
    /// Former ends of the lists that the plan appends to.
    pub(super) saved: Vec<Saved>,
    /// Checkpoints that the plan makes, each with one of its sequences and the position.
    pub(super) made: Vec<(u32, SeqId, Pos)>,
    /// Checkpoints that got their journal in the plan.
    pub(super) opened: Vec<u32>,
    /// True if the plan found no free checkpoint or journal where it wanted one.
    pub(super) short: bool,
}

impl Checkpoints {
    /// Make empty lists for `n_seq_max` sequences.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(params: RollbackParams, sizes: Sizes, n_seq_max: u32) -> Result<Checkpoints, Error> {
        let (n, n_checkpoints) = (n_seq_max as usize, sizes.n_checkpoints as usize);
        let lists = (0..n).map(|_| reserve::with_room(n_checkpoints.min(LIST_ROOM)));
        Ok(Checkpoints {
            params,
            sizes,
            checkpoints: reserve::filled(n_checkpoints, Checkpoint::default())?,
            free: (0..sizes.n_checkpoints).rev().collect(),
            free_journals: (0..sizes.n_journals).rev().collect(),
            lists: lists.collect::<Result<_, _>>()?,
            held: reserve::filled(n, None)?,
            ends: reserve::filled(n, None)?,
            saved: Vec::with_capacity(n),
            made: Vec::with_capacity(n_checkpoints),
            opened: Vec::with_capacity(sizes.n_journals as usize),
            short: false,
        })
    }

    /// Return the checkpoints of `seq`.
    pub fn list(&self, seq: SeqId) -> &[ListedCheckpoint] {
        &self.lists[seq.index()]
    }

    /// Return the last entry of `seq` at `pos` or before.
    pub fn before(&self, seq: SeqId, pos: Pos) -> Option<ListedCheckpoint> {
        let list = self.list(seq);
        list[..list.partition_point(|entry| entry.pos <= pos)].last().copied()
    }

    /// Return a checkpoint.
    pub fn get(&self, id: u32) -> &Checkpoint {
        &self.checkpoints[id as usize]
    }

    /// Return true if a checkpoint must not be dropped to free room.
    pub(super) fn stays(&self, id: u32) -> bool {
        self.get(id).pinned || self.get(id).floor
    }

    /// Return the first row behind a checkpoint, if it has a journal.
    pub fn first_row(&self, id: u32) -> Option<u32> {
        Some(self.get(id).journal? * self.params.journal)
    }

    /// Return the number of rows of all journals.
    pub fn n_rows(&self) -> u32 {
        self.sizes.n_journals.saturating_mul(self.params.journal)
    }

    /// Drop the checkpoints and journal rows of `seq` beyond its new end; return true if its
    /// rollback floor was among them.
    pub fn truncate(&mut self, seq: SeqId, end: Pos, caches: &mut Caches) -> bool {
        let mut was_floor = false;
        while let Some(&last) = self.lists[seq.index()].last() {
            let (i, keep) = (self.lists[seq.index()].len() - 1, (end.0 - last.pos.0).max(0) as u32);
            if last.pos > end {
                was_floor |= self.get(last.id).floor;
                self.remove(seq, i, caches);
            } else {
                if keep == 0 {
                    self.stop_reading(seq, i);
                } else if last.n_rows > keep {
                    self.lists[seq.index()][i].n_rows = keep;
                }
                break;
            }
        }
        was_floor
    }

    /// Drop all checkpoints of `seq`, because it holds other tokens now.
    pub fn forget(&mut self, seq: SeqId, caches: &mut Caches) {
        while let Some(last) = self.lists[seq.index()].len().checked_sub(1) {
            self.remove(seq, last, caches);
        }
        self.held[seq.index()] = None;
    }

    /// Make the empty list of `dst` name the checkpoints of `src`, after `make_room` for them.
    pub fn share(&mut self, src: SeqId, dst: SeqId) {
        let mut copy = core::mem::take(&mut self.lists[dst.index()]);
        copy.clone_from(&self.lists[src.index()]);
        for entry in &copy {
            let checkpoint = &mut self.checkpoints[entry.id as usize];
            checkpoint.refs += 1;
            checkpoint.readers += u32::from(entry.n_rows > 0);
        }
        self.lists[dst.index()] = copy;
    }

    /// Reserve the room that `share` needs.
    pub fn make_room(&mut self, src: SeqId, dst: SeqId) -> Result<(), Error> {
        let len = self.lists[src.index()].len();
        reserve::for_len(&mut self.lists[dst.index()], len)
    }
}

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl Checkpoints {
    /// Return true if the journal behind an entry crosses a multiple of the journal's length.
    fn overruns(&self, entry: &ListedCheckpoint) -> bool {
        let unit = self.params.journal.max(1);
        entry.n_rows > 0 && entry.pos.0 as u32 % unit + entry.n_rows > unit
    }

    /// Check counts, free lists, and the order of the lists.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        let mut refs = alloc::vec![0; self.checkpoints.len()];
        let mut readers = refs.clone();
        for entry in self.lists.iter().flat_map(|list| list.iter()) {
            refs[entry.id as usize] += 1;
            readers[entry.id as usize] += u32::from(entry.n_rows > 0);
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..refs.len() as u32).filter(|&id| refs[id as usize] == 0);
        let journals = self.checkpoints.iter().filter(|c| c.journal.is_some()).count();
        let is_in_order = |pair: &[ListedCheckpoint]| pair[0].pos.0 + pair[0].n_rows as i32 <= pair[1].pos.0;
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
        } else if self.lists.iter().flat_map(|list| list.iter()).any(|entry| self.overruns(entry)) {
            "a journal reaches past the next multiple of its length"
        } else if !self.lists.iter().all(|list| list.windows(2).all(is_in_order)) {
            "a list is out of order"
        } else if self.saved.len() + self.made.len() + self.opened.len() > 0 {
            "a plan left something behind"
        } else {
            return Ok(());
        };
        Err(alloc::format!("{wrong}: {:?}", self.lists))
    }
}
