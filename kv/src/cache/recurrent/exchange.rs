//! Reading states for a snapshot, and taking slots that an import fills.

use super::{CurrentState, HeldState, RecurrentCache, Tensor};
use crate::ids::SeqId;
use crate::layer::StateTensor;
use alloc::vec::Vec;
use core::ops::Range;

impl RecurrentCache {
    /// Return the state tensors of each layer.
    pub fn shape(&self) -> impl Iterator<Item = Vec<StateTensor>> + '_ {
        let spec = |tensor: &Tensor| StateTensor { len: tensor.len, input: tensor.input };
        self.layers.iter().map(move |layer| layer.iter().map(spec).collect())
    }

    /// Return the current state of `seq`.
    pub fn current(&self, seq: SeqId) -> Option<CurrentState> {
        self.current.get(seq.index()).copied().flatten()
    }

    /// Return the state of a checkpoint.
    pub fn held_for(&self, id: u32) -> Option<HeldState> {
        self.held.get(id as usize).copied().flatten()
    }

    /// Return the state in `slot`, tensor by tensor; empty slices if states are stored elsewhere.
    pub fn tensors(&self, slot: u32) -> impl Iterator<Item = &[f32]> {
        let start = slot as usize;
        let tensor = move |p: &'_ Tensor| start * p.len..(start + 1) * p.len;
        self.layers.iter().flatten().map(move |p| p.states.get(tensor(p)).unwrap_or_default())
    }

    /// Return the state in `slot`, tensor by tensor, to be written.
    pub fn tensors_mut(&mut self, slot: u32) -> impl Iterator<Item = &mut [f32]> {
        let start = slot as usize;
        self.layers.iter_mut().flatten().map(move |p| {
            let range = start * p.len..(start + 1) * p.len;
            p.states.get_mut(range).unwrap_or_default()
        })
    }

    /// Return rows of the journals, tensor by tensor; empty slices if journals are stored
    /// elsewhere.
    pub fn rows(&self, rows: Range<u32>) -> impl Iterator<Item = &[f32]> {
        let (start, end) = (rows.start as usize, rows.end as usize);
        let range = move |p: &'_ Tensor| start * p.input..end * p.input;
        self.layers.iter().flatten().map(move |p| p.journal.get(range(p)).unwrap_or_default())
    }

    /// Return rows of the journals, tensor by tensor, to be written.
    pub fn rows_mut(&mut self, rows: Range<u32>) -> impl Iterator<Item = &mut [f32]> {
        let (start, end) = (rows.start as usize, rows.end as usize);
        self.layers.iter_mut().flatten().map(move |p| {
            let range = start * p.input..end * p.input;
            p.journal.get_mut(range).unwrap_or_default()
        })
    }

    /// Replace the current state of a sequence; the slot counts the new user already.
    pub fn give(&mut self, seq: SeqId, state: Option<CurrentState>) {
        if let Some(old) = core::mem::replace(&mut self.current[seq.index()], state) {
            self.slots.release(old.slot);
        }
    }

    /// Give a new checkpoint its state; the slot counts the new user already.
    pub fn give_checkpoint(&mut self, id: u32, held: HeldState) {
        if let Some(slot) = self.held.get_mut(id as usize) {
            *slot = Some(held);
        }
    }
}
