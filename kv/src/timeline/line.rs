//! The checkpoints of one sequence, in order.

use crate::error::Error;
use crate::ids::Pos;
use crate::room;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A checkpoint of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub id: u32,
    /// The position of the token that follows it.
    pub pos: Pos,
    /// How many of the tokens that follow are in its journal.
    pub n_rows: u32,
}

/// Checkpoints of one sequence, ascending.
#[derive(Debug, Default)]
pub(crate) struct Line {
    entries: Vec<Entry>,
    /// An end that is held while a long batch is computed: nothing up to it is dropped.
    pub held: Option<Pos>,
}

impl Deref for Line {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.entries
    }
}

impl DerefMut for Line {
    fn deref_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }
}

impl Line {
    /// Makes room for `len` entries in all.
    pub fn make_room(&mut self, len: usize) -> Result<(), Error> {
        room::for_len(&mut self.entries, len)
    }

    pub fn make_room_for_one(&mut self) -> Result<(), Error> {
        room::for_one(&mut self.entries)
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub fn pop(&mut self) {
        self.entries.pop();
    }

    pub fn remove(&mut self, i: usize) -> Entry {
        self.entries.remove(i)
    }

    /// Becomes a copy of `other`.
    pub fn copy_from(&mut self, other: &Line) -> Result<(), Error> {
        self.entries.clear();
        self.make_room(other.len())?;
        self.entries.extend_from_slice(other);
        Ok(())
    }

    /// The last entry at `pos` or before.
    pub fn before(&self, pos: Pos) -> Option<Entry> {
        let n = self.partition_point(|entry| entry.pos <= pos);
        n.checked_sub(1).map(|i| self[i])
    }
}

#[cfg(any(test, feature = "oracle"))]
impl Line {
    /// Whether no position precedes the one before and no journal reaches past the next entry.
    pub fn is_in_order(&self) -> bool {
        self.windows(2).all(|pair| pair[0].pos.0 + pair[0].n_rows as i32 <= pair[1].pos.0)
    }
}
