//! The oracle: a memory so simple that its answers are taken as right.
//!
//! It keeps a plain list of tokens per sequence, each with its own copy of every layer's key and
//! value, and for recurrent layers the list of tokens that the state has seen. It has no blocks,
//! shares and reserves nothing, and never runs out of space. It therefore determines what a
//! sequence holds after any program of operations, and which operations are errors, except for
//! those that depend on free blocks.

use crate::batch::Batch;
use crate::cache::operation::Move;
use crate::cache::shift_cells;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Operation};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Rotation};
use crate::params::Params;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_core::cell::CellLayout;
use core::ops::Range;

/// One token of a sequence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NaiveCell {
    /// Position of the token.
    pub pos: Pos,
    /// Keys `[n_head_kv * d_k]` and values `[n_head_kv * d_v]` per layer with a cache, as rounded
    /// by the cache.
    pub rows: Arc<[Rows]>,
    /// Identity of the token: equal for tokens that sequences share and did not move.
    pub(super) id: u64,
}

/// The recurrent state of a sequence, as the tokens that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NaiveState {
    /// Tokens that the state has seen, in order, by their numbers in `append`.
    pub seen: Vec<u64>,
    first: Pos,
    last: Pos,
}

/// One sequence.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NaiveSequence {
    /// Tokens that attention sees, in order.
    pub cells: Vec<NaiveCell>,
    /// Recurrent state; `None` if it is empty or no layer is recurrent.
    pub state: Option<NaiveState>,
}

/// A memory without sharing, blocks or limits.
///
/// Each operation of [`Memory`](crate::Memory) has a counterpart here with the same errors, and a
/// test compares both after every step.
#[derive(Clone, Debug)]
pub struct Naive {
    params: Params,
    pub(super) attention: Vec<AttentionLayer>,
    recurrent: bool,
    pub(super) seqs: Vec<NaiveSequence>,
    next_id: u64,
}

/// A key and a value of one token in one layer.
pub type Rows = (Vec<f32>, Vec<f32>);

impl Naive {
    /// Return an empty memory for these layers. Layers without a cache of their own are skipped.
    pub fn new(layers: &[LayerSpec], params: &Params) -> Naive {
        let cached = |spec: &LayerSpec| match &spec.attention {
            AttentionSpec::Cached(layer) => Some(layer.clone()),
            _ => None,
        };
        Naive {
            params: *params,
            attention: layers.iter().filter_map(cached).collect(),
            recurrent: layers.iter().any(|spec| !spec.recurrent.is_empty()),
            seqs: alloc::vec![NaiveSequence::default(); params.n_seq_max as usize],
            next_id: 0,
        }
    }

    /// Return a sequence; `None` if there is no such sequence.
    pub fn sequence(&self, seq: SeqId) -> Option<&NaiveSequence> {
        self.seqs.get(seq.index())
    }

    /// Return the first position; see [`Memory::seq_pos_min`](crate::Memory::seq_pos_min).
    pub fn seq_pos_min(&self, seq: SeqId) -> Option<Pos> {
        let seq = self.sequence(seq)?;
        seq.state.as_ref().map(|state| state.last).max(seq.cells.first().map(|cell| cell.pos))
    }

    /// Return the last position; see [`Memory::seq_pos_max`](crate::Memory::seq_pos_max).
    pub fn seq_pos_max(&self, seq: SeqId) -> Option<Pos> {
        let seq = self.sequence(seq)?;
        let last = seq.cells.last().map(|cell| cell.pos);
        seq.state.as_ref().map(|state| state.last).or(last)
    }

    /// Remove tokens; see [`Memory::seq_rm`](crate::Memory::seq_rm).
    ///
    /// # Errors
    /// Those of [`Memory::seq_rm`](crate::Memory::seq_rm).
    pub fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check(seq, &range)?;
        self.change(seq, |s| s.remove(&range))
    }

    /// End a sequence at `to`, as a rollback does. Its last tokens must have consecutive positions.
    pub fn rewind(&mut self, seq: SeqId, to: Pos) {
        let Some(sequence) = self.seqs.get_mut(seq.index()) else { return };
        sequence.cells.retain(|cell| cell.pos < to);
        let Some(state) = &mut sequence.state else { return };
        let n_removed = (state.last.0 + 1 - to.0).max(0) as usize;
        state.seen.truncate(state.seen.len().saturating_sub(n_removed));
        state.last = Pos(state.last.0.min(to.0 - 1));
        if to <= state.first {
            sequence.state = None;
        }
    }

    /// Remove the cells of a sequence before `pos`, as layers with windows do.
    pub fn recycle(&mut self, seq: SeqId, pos: Pos) {
        if let Some(sequence) = self.seqs.get_mut(seq.index()) {
            sequence.cells.retain(|cell| cell.pos >= pos);
        }
    }

    /// Copy tokens; see [`Memory::seq_cp`](crate::Memory::seq_cp).
    ///
    /// # Errors
    /// Those of [`Memory::seq_cp`](crate::Memory::seq_cp).
    pub fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check(src, &range)?;
        self.check(dst, &range)?;
        if src == dst {
            return Err(Error::SameSequence { seq: src });
        }
        if self.seqs[dst.index()] != NaiveSequence::default() {
            return Err(Error::Occupied { seq: dst });
        }
        self.seqs[dst.index()] = self.seqs[src.index()].part(&range)?;
        Ok(())
    }

    /// Remove all sequences but one; see [`Memory::seq_keep`](crate::Memory::seq_keep).
    ///
    /// # Errors
    /// Those of [`Memory::seq_keep`](crate::Memory::seq_keep).
    pub fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check(seq, &(Pos::ZERO..Pos::MAX))?;
        let kept = core::mem::take(&mut self.seqs[seq.index()]);
        self.clear();
        self.seqs[seq.index()] = kept;
        Ok(())
    }

    /// Shift tokens; see [`Memory::seq_add`](crate::Memory::seq_add).
    ///
    /// # Errors
    /// Those of [`Memory::seq_add`](crate::Memory::seq_add), except [`Error::Full`].
    pub fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error> {
        self.check(seq, &range)?;
        self.shift(seq, &range, Move::Add(delta))
    }

    /// Divide positions; see [`Memory::seq_div`](crate::Memory::seq_div).
    ///
    /// # Errors
    /// Those of [`Memory::seq_div`](crate::Memory::seq_div), except [`Error::Full`].
    pub fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error> {
        self.check(seq, &range)?;
        if divisor < 1 {
            return Err(Error::Divisor { divisor });
        }
        self.shift(seq, &range, Move::Divide(divisor))
    }

    /// Remove all sequences; see [`Memory::clear`](crate::Memory::clear).
    pub fn clear(&mut self) {
        self.seqs.fill(NaiveSequence::default());
    }

    /// Append `batch`, like a plan that is prepared and committed. `rows` returns the key and value
    /// of a token, by its index in the batch, in a layer with a cache, by its number among those.
    ///
    /// # Errors
    /// Those of [`Memory::prepare`](crate::Memory::prepare); [`Error::Full`] only if a sequence
    /// would be longer than `n_ctx`.
    pub fn append(&mut self, batch: &Batch, rows: impl Fn(usize, usize) -> Rows) -> Result<(), Error> {
        batch.check(self.params.n_batch, self.params.n_seq_max)?;
        let mut after = self.clone();
        let mut together = Ok(());
        for index in 0..batch.len() {
            after.check_order(batch, index)?;
            together = together.and_then(|()| after.check_together(batch, index));
            after.push(batch, index, &rows);
        }
        together?;
        // Windows allow sequences of any length.
        let limited = self.attention.iter().any(|layer| layer.window.is_none());
        let too_long = |s: &NaiveSequence| limited && s.cells.len() > self.params.n_ctx as usize;
        if let Some(at) = after.seqs.iter().position(too_long) {
            let (seq, id) = (&after.seqs[at], SeqId(at as u32));
            let (need, free) = (seq.cells.len() as u64, self.params.n_ctx.into());
            return Err(Error::Full { what: "cells", need, free, seq: id });
        }
        *self = after;
        Ok(())
    }

    /// Check that the sequence exists and the range is valid.
    fn check(&self, seq: SeqId, range: &Range<Pos>) -> Result<(), Error> {
        if seq.0 >= self.params.n_seq_max {
            return Err(Error::UnknownSequence { seq, n_seq_max: self.params.n_seq_max });
        }
        if range.start < Pos::ZERO || range.end < range.start {
            return Err(Error::Range { start: range.start, end: range.end });
        }
        Ok(())
    }

    /// Change a sequence, or leave it as it was after an error.
    fn change(
        &mut self,
        seq: SeqId,
        f: impl FnOnce(&mut NaiveSequence) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut changed = self.seqs[seq.index()].clone();
        f(&mut changed)?;
        self.seqs[seq.index()] = changed;
        Ok(())
    }

    fn shift(&mut self, seq: SeqId, range: &Range<Pos>, by: Move) -> Result<(), Error> {
        let attention = self.attention.clone();
        let (first_id, params) = (self.next_id, self.params);
        self.next_id += self.seqs[seq.index()].cells.len() as u64;
        let turn = |cell: &mut NaiveCell, delta: i64| {
            let mut rows = cell.rows.to_vec();
            for (layer, (keys, values)) in attention.iter().zip(&mut rows) {
                if let Some(rotation) = &layer.rope {
                    *keys = turned(layer, rotation, &params, keys, values, delta as i32);
                }
            }
            cell.rows = rows.into();
        };
        self.change(seq, |s| s.shift(range, by, first_id, turn))
    }

    /// Check that a token of the batch follows the last of each of its sequences.
    fn check_order(&self, batch: &Batch, index: usize) -> Result<(), Error> {
        let pos = batch.positions()[index];
        for &seq in batch.seqs(index) {
            let wanted = self.seq_pos_max(seq).map_or(pos, |last| Pos(last.0 + 1));
            if pos != wanted {
                return Err(Error::Order { index: index as u32, seq, pos, wanted });
            }
        }
        Ok(())
    }

    /// Check that the sequences of a token hold the same.
    fn check_together(&self, batch: &Batch, index: usize) -> Result<(), Error> {
        let [first, rest @ ..] = batch.seqs(index) else { return Ok(()) };
        let same = |seq: &&SeqId| self.seqs[seq.index()].same_as(&self.seqs[first.index()]);
        match rest.iter().find(|seq| !same(seq)) {
            Some(&other) => Err(Error::Diverged { index: index as u32, seq: *first, other }),
            None => Ok(()),
        }
    }

    /// Append a token of the batch to its sequences.
    fn push(&mut self, batch: &Batch, index: usize, rows: impl Fn(usize, usize) -> Rows) {
        let store = |(i, layer): (usize, &AttentionLayer)| {
            let (keys, values) = rows(index, i);
            stored(layer, &self.params, &keys, &values)
        };
        let pos = batch.positions()[index];
        let rows = self.attention.iter().enumerate().map(store).collect();
        let cell = NaiveCell { pos, rows, id: self.next_id };
        self.next_id += 1;
        for seq in batch.seqs(index) {
            let seq = &mut self.seqs[seq.index()];
            if !self.attention.is_empty() {
                seq.cells.push(cell.clone());
            }
            if self.recurrent {
                let state =
                    seq.state.get_or_insert_with(|| NaiveState { seen: Vec::new(), first: pos, last: pos });
                state.seen.push(batch.tokens()[index].0.into());
                state.last = pos;
            }
        }
    }
}

impl NaiveSequence {
    /// Return true if both sequences hold the same tokens by identity.
    pub(super) fn same_as(&self, other: &NaiveSequence) -> bool {
        let ids = |s: &NaiveSequence| s.cells.iter().map(|cell| cell.id).collect::<Vec<_>>();
        ids(self) == ids(other)
            && self.state.as_ref().map(|s| &s.seen) == other.state.as_ref().map(|s| &s.seen)
    }

    fn remove(&mut self, range: &Range<Pos>) -> Result<(), Error> {
        self.cells.retain(|cell| !range.contains(&cell.pos));
        self.forget(range, Operation::Remove)
    }

    /// Remove a range from the state: all of it, a prefix, or nothing in the middle; fail for a
    /// suffix.
    fn forget(&mut self, range: &Range<Pos>, op: Operation) -> Result<(), Error> {
        let Some(state) = &mut self.state else { return Ok(()) };
        if range.contains(&state.last) {
            if range.start > state.first {
                return Err(Error::Unsupported { op, kind: Kind::Recurrent });
            }
            self.state = None;
        } else if range.contains(&state.first) {
            state.first = range.end;
        }
        Ok(())
    }

    /// Return the tokens of a range as a sequence; fail if that would cut a state.
    fn part(&self, range: &Range<Pos>) -> Result<NaiveSequence, Error> {
        let cells = self.cells.iter().filter(|cell| range.contains(&cell.pos)).cloned().collect();
        let state = self.state.clone().filter(|state| {
            let before = range.end <= state.first;
            !(before || range.start > state.last || range.is_empty())
        });
        if state.as_ref().is_some_and(|s| range.start > s.first || range.end <= s.last) {
            return Err(Error::Unsupported { op: Operation::Copy, kind: Kind::Recurrent });
        }
        Ok(NaiveSequence { cells, state })
    }

    /// Move or divide the positions of a range, and change the keys by `turn`.
    fn shift(
        &mut self,
        range: &Range<Pos>,
        by: Move,
        first_id: u64,
        turn: impl Fn(&mut NaiveCell, i64),
    ) -> Result<(), Error> {
        let mut places = Vec::new();
        for (i, mut cell) in core::mem::take(&mut self.cells).into_iter().enumerate() {
            let place = if range.contains(&cell.pos) { by.moved(cell.pos) } else { i64::from(cell.pos.0) };
            if place < 0 {
                continue;
            }
            if range.contains(&cell.pos) {
                let delta = place - i64::from(cell.pos.0);
                turn(&mut cell, delta);
                cell.id = first_id + i as u64;
            }
            places.push(place);
            cell.pos = Pos(place.min(i64::from(Pos::MAX.0)) as i32);
            self.cells.push(cell);
        }
        let overtakes = Error::Overtakes { seq: SeqId(0), pos: range.start, moved: 0 };
        if !places.is_sorted() || places.last().is_some_and(|&last| last >= i64::from(Pos::MAX.0)) {
            return Err(overtakes);
        }
        self.shift_state(range, by).ok_or(overtakes)?
    }

    /// Move the positions of the state; return `None` if no position would follow the last.
    fn shift_state(&mut self, range: &Range<Pos>, by: Move) -> Option<Result<(), Error>> {
        let Some(state) = &mut self.state else { return Some(Ok(())) };
        let place = |pos: Pos| if range.contains(&pos) { by.moved(pos) } else { i64::from(pos.0) };
        let (first, last) = (place(state.first), place(state.last));
        if last < 0 {
            return Some(self.forget(range, Operation::Add));
        }
        if last >= i64::from(Pos::MAX.0) {
            return None;
        }
        (state.first, state.last) = (Pos(first.clamp(0, last) as i32), Pos(last as i32));
        Some(Ok(()))
    }
}

/// Return keys and values as read back from a cache.
fn stored(layer: &AttentionLayer, params: &Params, keys: &[f32], values: &[f32]) -> Rows {
    through_block(layer, params, keys, values, |_, _| ())
}

/// Return keys as read back from a cache after a K-shift.
fn turned(
    layer: &AttentionLayer,
    rotation: &Rotation,
    params: &Params,
    keys: &[f32],
    values: &[f32],
    delta: i32,
) -> Vec<f32> {
    let mut scratch = alloc::vec![0.0; rotation.rope.row_len() + keys.len()];
    let turn =
        |layout: &CellLayout, block: &mut [u8]| shift_cells(rotation, layout, block, 1, delta, &mut scratch);
    through_block(layer, params, keys, values, turn).0
}

/// Store a token in a block of its own, change that, and read it back.
fn through_block(
    layer: &AttentionLayer,
    params: &Params,
    keys: &[f32],
    values: &[f32],
    change: impl FnOnce(&CellLayout, &mut [u8]),
) -> Rows {
    let layout = layer.layout(params.k_type, params.v_type);
    let mut block = alloc::vec![0; layout.block_bytes()];
    let (mut k, mut v) = (keys.to_vec(), values.to_vec());
    layout.store_k(&mut block, 0, keys);
    layout.store_v(&mut block, 0, values);
    change(&layout, &mut block);
    layout.load_k(&block, 0, &mut k);
    layout.load_v(&block, 0, &mut v);
    (k, v)
}
