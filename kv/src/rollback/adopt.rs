//! Checkpoints and lists that an import brings.

use super::checkpoints::{Checkpoint, Checkpoints, LIST_ROOM, ListedCheckpoint};
use crate::cache::Caches;
use crate::error::Error;
use crate::ids::SeqId;
use crate::reserve;
use alloc::vec::Vec;

/// Free checkpoints for an import, counted down as it chooses which ones to bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Free checkpoints for other uses than rollback floors.
    others: usize,
    /// Free checkpoints for rollback floors, one for each sequence.
    floors: usize,
}

impl Room {
    /// Count down one checkpoint; return false if there is no room for it.
    pub fn take(&mut self, is_floor: bool) -> bool {
        let left = if is_floor { &mut self.floors } else { &mut self.others };
        let is_there = *left > 0;
        *left -= usize::from(is_there);
        is_there
    }
}

impl Checkpoints {
    /// Return the room for checkpoints of an import.
    ///
    /// For each sequence, one checkpoint for its end and one for an edit stay free.
    pub fn room(&self) -> Room {
        let (n_free, n_seq_max) = (self.free.len(), self.lists.len());
        Room { others: n_free.saturating_sub(2 * n_seq_max), floors: n_seq_max.min(n_free) }
    }

    /// Return the number of further pins that the budget pays for.
    pub fn n_free_pins(&self) -> u32 {
        let n_pinned = self.checkpoints.iter().filter(|checkpoint| checkpoint.pinned).count();
        self.sizes.n_paid.saturating_sub(n_pinned as u32)
    }

    /// Return the number of rows of a journal; 0 if there are no journals.
    pub fn journal_len(&self) -> u32 {
        if self.sizes.n_journals > 0 { self.params.journal } else { 0 }
    }

    /// Put `adopted` in place of a free checkpoint for an import, with a journal if it has readers;
    /// return `None` if none is free.
    ///
    /// No list names it yet, so an import that fails must `abandon` it.
    pub fn adopt(&mut self, adopted: Checkpoint) -> Option<u32> {
        let id = self.free.pop()?;
        let journal = if adopted.readers > 0 { self.free_journals.pop() } else { None };
        let readers = if journal.is_some() { adopted.readers } else { 0 };
        self.checkpoints[id as usize] = Checkpoint { journal, readers, ..adopted };
        Some(id)
    }

    /// Free a checkpoint that `adopt` took.
    pub fn abandon(&mut self, id: u32) {
        let checkpoint = core::mem::take(&mut self.checkpoints[id as usize]);
        self.free_journals.extend(checkpoint.journal);
        self.free.push(id);
    }

    /// Return an empty list with room for `len` entries, and for as many as every list has.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn empty_list(&self, len: usize) -> Result<Vec<ListedCheckpoint>, Error> {
        reserve::with_room(len.max((self.sizes.n_checkpoints as usize).min(LIST_ROOM)))
    }

    /// Replace the list of a sequence; its checkpoints count the new list already.
    pub fn give(&mut self, seq: SeqId, list: Vec<ListedCheckpoint>, caches: &mut Caches) {
        self.forget(seq, caches);
        self.lists[seq.index()] = list;
    }
}
