//! Recurrent cache: a state of fixed size after the last token of each sequence.
//!
//! States live in reference-counted slots, which sequences and checkpoints share. A plan never
//! writes a slot that it did not take itself:
//!
//! - The first segment of a sequence reads its current slot and writes a fresh one.
//! - Later segments of the plan go on in the fresh slot.
//! - Where sequences that shared a token diverge, and where a checkpoint needs a state to stay, the
//!   next segment writes another fresh slot.
//!
//! The plan frees no slot before its commit, so undoing it means releasing the fresh slots.
//! Segments are stepped in order: where a segment was cut, its second half reads what the first
//! half wrote.

mod exchange;

use super::operation::{Move, Op, Restore};
use super::slots::{Demand, Slots};
use super::view::{StateSegment, States};
use crate::batch::Batch;
use crate::batch::split::{Segment, SplitBatch};
use crate::error::Error;
use crate::external::Home;
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Operation};
use crate::layer::{LayerSpec, StateTensor};
use crate::params::{Params, Sizes};
use crate::reserve;
use crate::survey::{Checkpoint, Layers};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

/// Current state of a sequence that is not empty: the state after its last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentState {
    /// Slot of the state.
    pub slot: u32,
    /// First position that the state has seen and that was not removed from the front.
    pub first: Pos,
    /// Position of the last token that the state has seen.
    pub last: Pos,
}

impl CurrentState {
    /// Return what removing the tokens in `range` leaves, as part of `op`.
    fn removed(self, range: &Range<Pos>, op: Operation) -> Result<Option<CurrentState>, Error> {
        let (starts, ends) = (range.contains(&self.first), range.contains(&self.last));
        match (starts || range.start <= self.first, ends) {
            (true, true) => Ok(None),
            (false, true) => Err(Error::Unsupported { op, kind: Kind::Recurrent }),
            // The front goes; a middle that goes leaves the state as it is.
            (_, false) => {
                Ok(Some(CurrentState { first: if starts { range.end } else { self.first }, ..self }))
            }
        }
    }

    /// Return the state of a copy of the tokens in `range`.
    fn copied(self, range: &Range<Pos>) -> Result<Option<CurrentState>, Error> {
        let is_none = range.end <= self.first || range.start > self.last || range.is_empty();
        match range.start <= self.first && range.contains(&self.last) {
            true => Ok(Some(self)),
            false if is_none => Ok(None),
            false => Err(Error::Unsupported { op: Operation::Copy, kind: Kind::Recurrent }),
        }
    }

    /// Return what moving the tokens in `range` of `seq` leaves.
    fn moved(self, seq: SeqId, range: &Range<Pos>, by: Move) -> Result<Option<CurrentState>, Error> {
        let place = |pos: Pos| if range.contains(&pos) { by.moved(pos) } else { i64::from(pos.0) };
        let last = place(self.last);
        if last < 0 {
            // All that was in the range is gone.
            return self.removed(range, Operation::Add);
        }
        if last >= i64::from(Pos::MAX.0) {
            return Err(Error::Overtakes { seq, pos: self.last, moved: last });
        }
        let first = place(self.first).clamp(0, last);
        Ok(Some(CurrentState { first: Pos(first as i32), last: Pos(last as i32), ..self }))
    }
}

/// State that a checkpoint retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldState {
    /// Slot of the state; `None` for the state of an empty sequence.
    pub slot: Option<u32>,
    /// First position that the state has seen.
    pub first: Pos,
}

impl HeldState {
    /// Return what a checkpoint at `pos` retains of a sequence with this state.
    fn of(state: Option<CurrentState>, pos: Pos) -> HeldState {
        HeldState { slot: state.map(|state| state.slot), first: state.map_or(pos, |state| state.first) }
    }
}

/// States and journal of one state tensor of a layer.
struct Tensor {
    /// Elements of a state.
    len: usize,
    /// States, `[n_slots, len]`; empty if they are stored elsewhere.
    states: Vec<f32>,
    /// Elements that enter the state with one token.
    input: usize,
    /// Inputs of journaled tokens, `[n_rows, input]`; empty if they are stored elsewhere.
    journal: Vec<f32>,
}

/// Recurrent states of all sequences and checkpoints, and the journals of their inputs.
///
/// The users of a slot are the sequences whose current state it is, the checkpoints that retain it,
/// and a plan that took it.
pub(crate) struct RecurrentCache {
    /// State tensors by layer.
    layers: Vec<Vec<Tensor>>,
    /// Users of each slot.
    pub slots: Slots,
    /// Current state of each sequence.
    current: Vec<Option<CurrentState>>,
    /// State of each checkpoint.
    held: Vec<Option<HeldState>>,
    /// Checkpoints that the plan makes, with their states.
    holding: Vec<(u32, HeldState)>,
    /// State of each sequence that the plan steps, after its steps so far.
    stepped: Vec<Option<CurrentState>>,
    /// Slots that the plan took.
    fresh: Vec<u32>,
    /// Segments of the plan, with the slots that they read and write.
    pub segments: Vec<StateSegment>,
    /// Slots that the plan needs.
    demand: Demand,
}

impl RecurrentCache {
    /// Make a cache for the state tensors of each recurrent layer of a model.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(
        layers: &[LayerSpec],
        params: &Params,
        sizes: &Sizes,
        home: Home,
    ) -> Result<RecurrentCache, Error> {
        let (n_slots, n_seq_max) = (params.n_states(sizes.n_checkpoints), params.n_seq_max as usize);
        let n_rows = u64::from(sizes.n_journals) * u64::from(params.rollback.journal);
        let tensor = |&StateTensor { len, input }: &StateTensor| {
            let states = reserve::zeroed(home.len(u64::from(n_slots) * len as u64))?;
            let journal = reserve::zeroed(home.len(n_rows * input as u64))?;
            Ok(Tensor { len, states, input, journal })
        };
        let layers = layers.iter().map(|spec| &spec.recurrent).filter(|tensors| !tensors.is_empty());
        let layers = layers.map(|tensors| tensors.iter().map(tensor).collect());
        Ok(RecurrentCache {
            layers: layers.collect::<Result<_, Error>>()?,
            slots: Slots::new(n_slots)?,
            current: reserve::filled(n_seq_max, None)?,
            held: reserve::filled(sizes.n_checkpoints as usize, None)?,
            holding: Vec::with_capacity(sizes.n_checkpoints as usize),
            stepped: reserve::filled(n_seq_max, None)?,
            fresh: Vec::with_capacity(n_slots as usize),
            segments: reserve::with_room(params.n_batch as usize)?,
            demand: Demand::default(),
        })
    }

    /// Retain a state for checkpoint `id`.
    fn keep(&mut self, id: u32, held: HeldState) {
        if let Some(slot) = held.slot {
            self.slots.retain(slot);
        }
        self.held[id as usize] = Some(held);
    }

    /// Replace the current state of `seq`, and count the users of both slots.
    fn set_current(&mut self, seq: SeqId, state: Option<CurrentState>) {
        if let Some(state) = &state {
            self.slots.retain(state.slot);
        }
        self.give(seq, state);
    }

    /// Return the state of `seq` in the plan so far.
    fn planned(&self, seq: SeqId) -> Option<CurrentState> {
        self.stepped[seq.index()].or(self.current[seq.index()])
    }

    /// Reserve slots for a whole batch; the caller undoes it on error.
    ///
    /// # Errors
    /// - [`Error::Full`] if too few slots are free.
    /// - [`Error::Diverged`] if the sequences of a token do not have one state.
    pub fn reserve(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        let free = self.slots.n_free();
        for segment in split_batch.segments() {
            let tokens = &split_batch.tokens()[segment.tokens.clone()];
            let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { continue };
            let seqs = batch.seqs(first.index as usize);
            if let (Some(id), Some(&seq)) = (segment.checkpoint, seqs.first()) {
                // The next segment of the sequence writes elsewhere.
                self.holding.push((id, HeldState::of(self.planned(seq), first.pos)));
            }
            let (read, write) = self.step(seqs, segment, first.index)?;
            let (start, end) = (segment.tokens.start as u32, segment.tokens.end as u32);
            reserve::for_more(&mut self.segments, 1)?;
            self.segments.push(StateSegment { start, end, read, write, row: segment.row });
            for &seq in seqs {
                let first = self.planned(seq).map_or(first.pos, |state| state.first);
                self.stepped[seq.index()] = Some(CurrentState { slot: write, first, last: last.pos });
            }
        }
        self.demand.check(free, "states", 1)
    }

    /// Return the slots that the next segment of sequences with one state reads and writes.
    ///
    /// A missing slot is counted and replaced by an invalid number, so that the error tells the
    /// need of the whole batch.
    ///
    /// # Errors
    /// [`Error::Diverged`] if the sequences do not have one state.
    fn step(&mut self, seqs: &[SeqId], segment: &Segment, index: u32) -> Result<(Option<u32>, u32), Error> {
        let [first, rest @ ..] = seqs else { return Err(Error::NoSequence { index }) };
        let slot = |seq: SeqId| self.planned(seq).map(|state| state.slot);
        let read = slot(*first);
        if let Some(&other) = rest.iter().find(|seq| slot(**seq) != read) {
            return Err(Error::Diverged { index, seq: *first, other });
        }
        let is_held = |slot: &u32| self.holding.iter().any(|(_, held)| held.slot == Some(*slot));
        if let Some(slot) = read.filter(|slot| segment.goes_on && !is_held(slot)) {
            return Ok((Some(slot), slot));
        }
        let write = self.demand.take(&mut self.slots, 1, *first);
        self.fresh.extend(write);
        Ok((read, write.unwrap_or(u32::MAX)))
    }

    /// Forget the plan and free the slots that it took and nobody else uses.
    pub fn undo(&mut self) {
        self.stepped.fill(None);
        self.segments.clear();
        self.holding.clear();
        self.demand = Demand::default();
        self.fresh.drain(..).for_each(|slot| self.slots.release(slot));
    }

    /// Return the sequence that `op` changes, and the state that `op` would give it.
    ///
    /// # Errors
    /// - [`Error::Occupied`] if the target of a copy has a state.
    /// - [`Error::Unsupported`] if the operation needs a state at an earlier position.
    /// - [`Error::Overtakes`] if a token would move to an invalid position.
    fn after(&self, op: &Op) -> Result<(SeqId, Option<CurrentState>), Error> {
        let (Op::Remove { seq, .. } | Op::Copy { dst: seq, .. } | Op::Move { seq, .. }) = op;
        let from = if let Op::Copy { src, .. } = op { src } else { seq };
        if from != seq && self.current[seq.index()].is_some() {
            return Err(Error::Occupied { seq: *seq });
        }
        let Some(state) = self.current[from.index()] else { return Ok((*seq, None)) };
        let after = match op {
            Op::Remove { range, .. } => state.removed(range, Operation::Remove),
            Op::Copy { range, .. } => state.copied(range),
            Op::Move { range, by, .. } => state.moved(*seq, range, *by),
        };
        Ok((*seq, after?))
    }

    /// Check that `op` can be done.
    ///
    /// # Errors
    /// Those of `after`.
    pub fn admit(&self, op: &Op) -> Result<(), Error> {
        self.after(op).map(|_| ())
    }

    /// Do an operation that `admit` allowed.
    pub fn apply(&mut self, op: &Op) {
        if let Ok((seq, state)) = self.after(op) {
            self.set_current(seq, state);
        }
    }

    /// Return the position of the last token that the state of `seq` has seen.
    pub fn last_pos(&self, seq: SeqId) -> Option<Pos> {
        self.current[seq.index()].map(|state| state.last)
    }

    /// Make the states of the plan current, and retain those of its checkpoints.
    pub fn commit(&mut self) {
        for i in 0..self.holding.len() {
            let (id, held) = self.holding[i];
            self.keep(id, held);
        }
        for seq in 0..self.stepped.len() {
            if let Some(state) = self.stepped[seq] {
                self.set_current(SeqId(seq as u32), Some(state));
            }
        }
        self.undo();
    }

    /// Return true if `seq` ends at `pos`, or has no state.
    pub fn can_cut(&self, seq: SeqId, pos: Pos) -> bool {
        self.current[seq.index()].is_none_or(|state| pos.0 == state.last.0 + 1)
    }

    /// Return the only position at which `seq` can be cut, or 0 if it has no state.
    pub fn cut_from(&self, seq: SeqId) -> Pos {
        self.current[seq.index()].map_or(Pos::ZERO, |state| state.last.next())
    }

    /// Return true if the state of `seq` has seen a token in `range`.
    pub fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let state = self.current[seq.index()];
        state.is_some_and(|state| range.start <= state.last && range.end > state.first && !range.is_empty())
    }

    /// Retain the state of `seq`, which ends at `pos`, as checkpoint `id`.
    pub fn hold_end(&mut self, id: u32, seq: SeqId, pos: Pos) {
        self.keep(id, HeldState::of(self.current[seq.index()], pos));
    }

    /// Release the state of checkpoint `id`.
    pub fn drop_checkpoint(&mut self, id: u32) {
        if let Some(HeldState { slot: Some(slot), .. }) = self.held[id as usize].take() {
            self.slots.release(slot);
        }
    }

    /// Reserve the slot that a rollback writes, and list the segments that replay the journal.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the checkpoint has no state.
    /// - [`Error::Full`] if no slot is free.
    pub fn reserve_rollback(&mut self, seq: SeqId, from: &Restore) -> Result<(), Error> {
        if self.can_cut(seq, from.to) || from.to == Pos::ZERO {
            return Ok(());
        }
        let held = from.checkpoint.and_then(|id| self.held[id as usize]);
        let Some(HeldState { slot, first }) = held else {
            return Err(Error::Unsupported { op: Operation::Remove, kind: Kind::Recurrent });
        };
        let last = Pos(from.to.0 - 1);
        if from.rows.is_empty() {
            // A checkpoint of an empty sequence has no slot, and leaves the sequence without a
            // state.
            self.stepped[seq.index()] = slot.map(|slot| CurrentState { slot, first, last });
            return Ok(());
        }
        let write = self.slots.take(1).ok_or(Error::Full { what: "states", need: 1, free: 0, seq })?;
        self.fresh.push(write);
        let (mut read, n_rows) = (slot, from.rows.len() as u32);
        for start in (0..n_rows).step_by(from.n_ubatch as usize) {
            let (end, row) = ((start + from.n_ubatch).min(n_rows), Some(from.rows.start + start));
            self.segments.push(StateSegment { start, end, read, write, row });
            read = Some(write);
        }
        self.stepped[seq.index()] = Some(CurrentState { slot: write, first, last });
        Ok(())
    }

    /// Make the state that a rollback restored the current one of `seq`.
    pub fn roll_back(&mut self, seq: SeqId, from: &Restore) {
        if !self.can_cut(seq, from.to) {
            self.set_current(seq, self.stepped[seq.index()]);
        }
        self.undo();
    }

    /// Return tensor `tensor` of the states of `layer`, for `segments` of the split batch.
    pub fn states(&mut self, layer: usize, tensor: usize, segments: Range<usize>) -> Option<States<'_>> {
        let tensor = self.layers.get_mut(layer)?.get_mut(tensor)?;
        let segments = self.segments.get(segments)?;
        let first = segments.first().map_or(0, |segment| segment.start);
        let Tensor { len, ref mut states, input, ref mut journal } = *tensor;
        Some(States { len, states, input, journal, segments, first })
    }

    /// Describe the state of `seq`, and add the state that each numbered checkpoint retains.
    pub fn survey(&self, seq: SeqId, checkpoints: &mut [(u32, Checkpoint)]) -> Layers {
        let bytes =
            |len: fn(&Tensor) -> usize| 4 * self.layers.iter().flatten().map(len).sum::<usize>() as u64;
        let (state_bytes, row_bytes) = (bytes(|tensor| tensor.len), bytes(|tensor| tensor.input));
        let own = self.current[seq.index()].map(|state| state.slot);
        let users = |slot: u32| self.slots.refs(slot);
        let mut apart = BTreeSet::new();
        for (id, checkpoint) in checkpoints {
            let Some(slot) = self.held_for(*id).and_then(|held| held.slot) else { continue };
            checkpoint.state_bytes += state_bytes;
            checkpoint.bytes_alone += if users(slot) == 1 { state_bytes } else { 0 };
            apart.extend(Some(slot).filter(|_| Some(slot) != own));
        }
        Layers {
            state_bytes,
            state_users: own.map_or(0, users),
            row_bytes,
            held_bytes: apart.len() as u64 * state_bytes,
            ..Layers::new(Kind::Recurrent, self.layers.len())
        }
    }
}

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl RecurrentCache {
    /// Return the first tensor of the current state of `seq`.
    pub fn state(&self, layer: usize, seq: SeqId) -> Option<&[f32]> {
        let tensor = self.layers[layer].first()?;
        let slot = self.current(seq)?.slot;
        tensor.states.chunks_exact(tensor.len).nth(slot as usize)
    }

    /// Check that slots, checkpoints and plan add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        let current = self.current.iter().flatten().map(|state| state.slot);
        let held = self.held.iter().flatten().filter_map(|held| held.slot);
        self.slots.audit(current.chain(held))?;
        let left = self.stepped.iter().flatten().count()
            + self.holding.len()
            + self.fresh.len()
            + self.segments.len();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
