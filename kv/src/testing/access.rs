//! Access to the cells, states and books of a [`Memory`], for tests.

use super::Rows;
use crate::cache::view::Cell;
use crate::ids::{Pos, SeqId};
use crate::memory::Memory;
use alloc::string::String;
use alloc::vec::Vec;

impl Memory {
    /// Return the position, key and value of every token that `layer` holds of `seq`, in order.
    pub fn cells(&self, layer: usize, seq: SeqId) -> Vec<(Pos, Rows)> {
        self.caches.kv_of(layer).map_or(Vec::new(), |(kv, layer)| kv.rows(layer, seq))
    }

    /// Return the position and the cell of every token that `layer` holds of `seq`, in order.
    pub fn cell_places(&self, layer: usize, seq: SeqId) -> Vec<(Pos, Cell)> {
        self.caches.kv_of(layer).map_or(Vec::new(), |(kv, _)| kv.cell_places(seq))
    }

    /// Return the slot of the current state of `seq`.
    pub fn state_slot(&self, seq: SeqId) -> Option<u32> {
        Some(self.caches.states.as_ref()?.current(seq)?.slot)
    }

    /// Return the current state of `seq` in `layer`.
    pub fn state(&self, layer: usize, seq: SeqId) -> Option<&[f32]> {
        let (states, layer) = self.caches.states_of(layer)?;
        states.state(layer, seq)
    }

    /// Return the number of free blocks of all caches.
    pub fn n_free_blocks(&self) -> u32 {
        self.caches.n_free_blocks().sum()
    }

    /// Check that reference counts, block tables and free lists agree.
    ///
    /// # Errors
    /// A sentence about the first disagreement.
    pub fn audit(&self) -> Result<(), String> {
        self.caches.audit()?;
        self.checkpoints.audit()
    }
}
