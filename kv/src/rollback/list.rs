//! List of the checkpoints of one sequence.

use crate::error::Error;
use crate::ids::Pos;
use crate::reserve;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

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

/// Checkpoints of one sequence, ascending by position.
///
/// The journal of an entry never reaches past the position of the next entry. Two entries can have
/// one position, where a fork diverged.
#[derive(Debug, Default)]
pub(crate) struct CheckpointList {
    /// Entries in order.
    entries: Vec<ListedCheckpoint>,
    /// End that a savepoint retains while a batch is computed; no checkpoint up to it is dropped.
    pub held: Option<Pos>,
}

impl Deref for CheckpointList {
    type Target = [ListedCheckpoint];

    fn deref(&self) -> &[ListedCheckpoint] {
        &self.entries
    }
}

impl DerefMut for CheckpointList {
    fn deref_mut(&mut self) -> &mut [ListedCheckpoint] {
        &mut self.entries
    }
}

impl CheckpointList {
    /// Reserve room for `len` entries in total.
    pub fn make_room(&mut self, len: usize) -> Result<(), Error> {
        reserve::for_len(&mut self.entries, len)
    }

    /// Reserve room for one more entry.
    pub fn make_room_for_one(&mut self) -> Result<(), Error> {
        reserve::for_one(&mut self.entries)
    }

    /// Append an entry.
    pub fn push(&mut self, entry: ListedCheckpoint) {
        self.entries.push(entry);
    }

    /// Remove the last entry.
    pub fn pop(&mut self) {
        self.entries.pop();
    }

    /// Remove entry `i` and return it.
    pub fn remove(&mut self, i: usize) -> ListedCheckpoint {
        self.entries.remove(i)
    }

    /// Replace the entries by those of `other`.
    pub fn copy_from(&mut self, other: &CheckpointList) -> Result<(), Error> {
        self.entries.clear();
        self.make_room(other.len())?;
        self.entries.extend_from_slice(other);
        Ok(())
    }

    /// Return the last entry at `pos` or before.
    pub fn before(&self, pos: Pos) -> Option<ListedCheckpoint> {
        let n = self.partition_point(|entry| entry.pos <= pos);
        n.checked_sub(1).map(|i| self[i])
    }
}

#[cfg(any(test, feature = "testing"))]
impl CheckpointList {
    /// Return true if positions ascend and no journal reaches past the next entry.
    pub fn is_in_order(&self) -> bool {
        self.windows(2).all(|pair| pair[0].pos.0 + pair[0].n_rows as i32 <= pair[1].pos.0)
    }
}
