//! Looking at states to take an image of them, and taking slots that are filled from one.

use super::{Held, Piece, Recurrent, Tip};
use crate::ids::SeqId;
use crate::layer::StatePart;
use alloc::vec::Vec;
use core::ops::Range;

impl Recurrent {
    /// Layers and their pieces.
    pub fn shape(&self) -> impl Iterator<Item = Vec<StatePart>> + '_ {
        let part = |piece: &Piece| StatePart { len: piece.len, input: piece.input };
        self.layers.iter().map(move |layer| layer.iter().map(part).collect())
    }

    /// The state after the last token of `seq`.
    pub fn tip(&self, seq: SeqId) -> Option<Tip> {
        self.tips.get(seq.index()).copied().flatten()
    }

    /// What a checkpoint keeps.
    pub fn held_for(&self, id: u32) -> Option<Held> {
        self.held.get(id as usize).copied().flatten()
    }

    /// A state, piece by piece.
    pub fn pieces(&self, slot: u32) -> impl Iterator<Item = &[f32]> {
        let start = slot as usize;
        let piece = move |p: &'_ Piece| start * p.len..(start + 1) * p.len;
        self.layers.iter().flatten().map(move |p| p.states.get(piece(p)).unwrap_or_default())
    }

    /// The same to be written.
    pub fn pieces_mut(&mut self, slot: u32) -> impl Iterator<Item = &mut [f32]> {
        let start = slot as usize;
        self.layers.iter_mut().flatten().map(move |p| {
            let range = start * p.len..(start + 1) * p.len;
            p.states.get_mut(range).unwrap_or_default()
        })
    }

    /// Rows of the journals, piece by piece.
    pub fn rows(&self, rows: Range<u32>) -> impl Iterator<Item = &[f32]> {
        let (start, end) = (rows.start as usize, rows.end as usize);
        let range = move |p: &'_ Piece| start * p.input..end * p.input;
        self.layers.iter().flatten().map(move |p| p.journal.get(range(p)).unwrap_or_default())
    }

    /// The same to be written.
    pub fn rows_mut(&mut self, rows: Range<u32>) -> impl Iterator<Item = &mut [f32]> {
        let (start, end) = (rows.start as usize, rows.end as usize);
        self.layers.iter_mut().flatten().map(move |p| {
            let range = start * p.input..end * p.input;
            p.journal.get_mut(range).unwrap_or_default()
        })
    }

    /// How many slots there are.
    pub fn n_slots(&self) -> usize {
        self.refs.len()
    }

    /// How many slots are free.
    pub fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot for `refs` users.
    pub fn take(&mut self, refs: u32) -> Option<u32> {
        let slot = self.free.pop()?;
        self.refs[slot as usize] = refs;
        Some(slot)
    }

    /// Frees a slot, whoever uses it.
    pub fn give_back(&mut self, slot: u32) {
        self.refs[slot as usize] = 0;
        self.free.push(slot);
    }

    /// Gives a sequence another state, which counts it as a user already.
    pub fn give(&mut self, seq: SeqId, tip: Option<Tip>) {
        if let Some(old) = core::mem::replace(&mut self.tips[seq.index()], tip) {
            self.release(old.slot);
        }
    }

    /// Gives a new checkpoint its state, which counts it as a user already.
    pub fn give_checkpoint(&mut self, id: u32, held: Held) {
        if let Some(slot) = self.held.get_mut(id as usize) {
            *slot = Some(held);
        }
    }
}
