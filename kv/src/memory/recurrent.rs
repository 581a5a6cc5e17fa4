//! A state of fixed size after the last token of each sequence.
//!
//! States live in reference-counted slots. A plan never writes a slot that it did not take itself: a sequence's first
//! run reads the old slot and writes a fresh one, later runs of the same plan go on in place, and where sequences that
//! shared a token part, each takes a fresh slot again. Nothing is freed before the commit, so undoing is dropping the
//! fresh slots. Runs are stepped in order: where a run is cut, its second piece reads what the first wrote.

mod exchange;

use super::{Kind, Op, Operation, Part, Restore};
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::layer::{Params, Sizes, StatePart};
use crate::plan::States;
use crate::room;
use crate::split::{Schedule, Split};
use crate::storage::{Home, StateCopy};
use crate::survey;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

/// Tokens of a ubatch that step one state, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateRun {
    /// The first token.
    pub start: u32,
    /// The token after the last.
    pub end: u32,
    /// The slot with the state before the first token; `None`: the state of an empty sequence, all zeros.
    pub read: Option<u32>,
    /// The slot for the state after the last token; may be the one that is read, and then is no other's.
    pub write: u32,
    /// The row of the journals that holds what enters the state with the first token; `None`: not journaled.
    pub row: Option<u32>,
}

impl StateRun {
    /// The copy that this run begins with; `None` if it goes on in the slot that it reads.
    pub fn copy(&self) -> Option<StateCopy> {
        let StateRun { start: token, read: from, write: to, .. } = *self;
        (from != Some(to)).then_some(StateCopy { from, to, token })
    }

    /// The same with tokens counted from `first`.
    pub(crate) fn counted_from(self, first: u32) -> StateRun {
        StateRun { start: self.start - first, end: self.end - first, ..self }
    }
}

/// The state of a sequence that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub slot: u32,
    /// The first position that the state has seen and that was not removed from the front.
    pub first: Pos,
    pub last: Pos,
}

/// What an operation leaves of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    Tip(Tip),
    /// A state that is not kept.
    Older,
    /// A position that is none.
    TooFar {
        pos: Pos,
        moved: i64,
    },
}

/// The states of one piece of a layer.
struct Piece {
    len: usize,
    /// `[n_slots, len]`.
    states: Vec<f32>,
    /// Numbers that enter the state with a token.
    input: usize,
    /// `[n_rows, input]`.
    journal: Vec<f32>,
}

/// What a checkpoint keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// `None`: the state of an empty sequence.
    pub slot: Option<u32>,
    /// The first position that the state has seen.
    pub first: Pos,
}

/// A sequence that a plan steps.
struct Staged {
    seq: SeqId,
    tip: Tip,
    /// A token of the last run, by index in the batch: sequences that stepped together have the same.
    index: u32,
}

/// The part of a memory that keeps recurrent states.
pub(crate) struct Recurrent {
    /// By layer, then by piece.
    layers: Vec<Vec<Piece>>,
    refs: Vec<u32>,
    free: Vec<u32>,
    tips: Vec<Option<Tip>>,
    /// By checkpoint.
    held: Vec<Option<Held>>,
    /// Checkpoints that the plan makes.
    holding: Vec<(u32, Held)>,
    /// Where each sequence is in `staged`.
    places: Vec<Option<u32>>,
    staged: Vec<Staged>,
    /// Slots that the plan took.
    fresh: Vec<u32>,
    runs: Vec<StateRun>,
    /// Slots that the plan needs.
    need: u32,
    /// The first sequence of the plan that there was no slot for.
    lacking: Option<SeqId>,
}

impl Recurrent {
    pub fn new(
        layers: &[&[StatePart]],
        params: &Params,
        sizes: &Sizes,
        home: Home,
    ) -> Result<Recurrent, Error> {
        let (n_slots, n_seq_max) = (params.n_states(sizes.n_checkpoints), params.n_seq_max as usize);
        let n_rows = u64::from(sizes.n_journals) * u64::from(params.timeline.journal);
        let piece = |&StatePart { len, input }: &StatePart| {
            let states = room::zeroed(home.len(u64::from(n_slots) * len as u64))?;
            let journal = room::zeroed(home.len(n_rows * input as u64))?;
            Ok(Piece { len, states, input, journal })
        };
        let layers = layers.iter().map(|parts| parts.iter().map(piece).collect());
        let mut runs = Vec::new();
        room::for_len(&mut runs, params.n_batch as usize)?;
        Ok(Recurrent {
            layers: layers.collect::<Result<_, Error>>()?,
            refs: room::filled(n_slots as usize, 0)?,
            free: (0..n_slots).rev().collect(),
            tips: room::filled(n_seq_max, None)?,
            held: room::filled(sizes.n_checkpoints as usize, None)?,
            holding: Vec::with_capacity(sizes.n_checkpoints as usize),
            places: room::filled(n_seq_max, None)?,
            staged: Vec::with_capacity(n_seq_max),
            fresh: Vec::with_capacity(n_slots as usize),
            runs,
            need: 0,
            lacking: None,
        })
    }

    fn release(&mut self, slot: u32) {
        let refs = &mut self.refs[slot as usize];
        debug_assert!(*refs > 0, "slot {slot} is free");
        *refs -= 1;
        if *refs == 0 {
            self.free.push(slot);
        }
    }

    fn keep(&mut self, id: u32, held: Held) {
        if let Some(slot) = held.slot {
            self.refs[slot as usize] += 1;
        }
        self.held[id as usize] = Some(held);
    }

    fn set_tip(&mut self, seq: SeqId, tip: Option<Tip>) {
        if let Some(tip) = &tip {
            self.refs[tip.slot as usize] += 1;
        }
        if let Some(old) = core::mem::replace(&mut self.tips[seq.index()], tip) {
            self.release(old.slot);
        }
    }

    /// The plan's state of a sequence: slot, first position, and a token of its last run.
    fn current(&self, seq: SeqId) -> Option<&Staged> {
        self.places[seq.index()].and_then(|place| self.staged.get(place as usize))
    }

    fn slot(&self, seq: SeqId) -> Option<u32> {
        let kept = || self.tips[seq.index()].map(|tip| tip.slot);
        self.current(seq).map(|staged| staged.tip.slot).or_else(kept)
    }

    fn reserve_all(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        let free = self.free.len() as u64;
        for run in schedule.runs() {
            let tokens = &schedule.tokens()[run.tokens.clone()];
            let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { continue };
            let seqs = batch.seqs(first.index as usize);
            if let (Some(id), Some(&seq)) = (run.checkpoint, seqs.first()) {
                self.stage_hold(id, seq, first.pos);
            }
            let (read, write) = self.step(batch, seqs, first.index)?;
            let (start, end) = (run.tokens.start as u32, run.tokens.end as u32);
            room::for_one(&mut self.runs)?;
            self.runs.push(StateRun { start, end, read, write, row: run.row });
            for &seq in seqs {
                let known = self.current(seq).map(|s| s.tip).or(self.tips[seq.index()]);
                let tip =
                    Tip { slot: write, first: known.map_or(first.pos, |tip| tip.first), last: last.pos };
                self.stage(Staged { seq, tip, index: last.index });
            }
        }
        if u64::from(self.need) > free {
            return Err(Error::Full {
                what: "states",
                need: self.need.into(),
                free,
                seq: self.lacking.unwrap_or_default(),
            });
        }
        Ok(())
    }

    /// The state of `seq` in the plan so far will be kept; so its next run must write elsewhere.
    fn stage_hold(&mut self, id: u32, seq: SeqId, pos: Pos) {
        let tip = self.current(seq).map(|s| s.tip).or(self.tips[seq.index()]);
        let held = Held { slot: tip.map(|tip| tip.slot), first: tip.map_or(pos, |tip| tip.first) };
        self.holding.push((id, held));
    }

    /// The slots that sequences with the same state read and write next.
    fn step(&mut self, batch: &Batch, seqs: &[SeqId], index: u32) -> Result<(Option<u32>, u32), Error> {
        let [first, rest @ ..] = seqs else { return Err(Error::NoSequence { index }) };
        let read = self.slot(*first);
        if let Some(&other) = rest.iter().find(|seq| self.slot(**seq) != read) {
            return Err(Error::Diverged { index, seq: *first, other });
        }
        let together = |seq: &SeqId| self.current(*seq).is_some_and(|s| batch.seqs(s.index as usize) == seqs);
        let is_held = |slot: &u32| self.holding.iter().any(|(_, held)| held.slot == Some(*slot));
        if let Some(slot) = read.filter(|slot| seqs.iter().all(together) && !is_held(slot)) {
            return Ok((Some(slot), slot));
        }
        self.need += 1;
        let Some(write) = self.free.pop() else {
            self.lacking = self.lacking.or(Some(*first));
            return Ok((read, u32::MAX));
        };
        self.fresh.push(write);
        Ok((read, write))
    }

    fn stage(&mut self, staged: Staged) {
        match self.places[staged.seq.index()] {
            Some(place) => self.staged[place as usize] = staged,
            None => {
                self.places[staged.seq.index()] = Some(self.staged.len() as u32);
                self.staged.push(staged);
            }
        }
    }

    fn forget_plan(&mut self) {
        for staged in self.staged.drain(..) {
            self.places[staged.seq.index()] = None;
        }
        self.runs.clear();
        self.holding.clear();
        self.need = 0;
        self.lacking = None;
        for slot in self.fresh.drain(..).filter(|&slot| self.refs[slot as usize] == 0) {
            self.free.push(slot);
        }
    }

    /// What removing, moving or dividing leaves of a sequence.
    fn after(&self, op: &Op) -> Option<(SeqId, After)> {
        let (seq, range) = match op {
            Op::Remove { seq, range } | Op::Add { seq, range, .. } | Op::Divide { seq, range, .. } => {
                (*seq, range)
            }
            Op::Copy { .. } | Op::Keep { .. } | Op::Clear => return None,
        };
        let tip = self.tips[seq.index()]?;
        let after = match op {
            Op::Remove { .. } => tip.removed(range),
            _ => tip.moved(range, op),
        };
        Some((seq, after))
    }
}

impl Tip {
    fn removed(self, range: &Range<Pos>) -> After {
        let (starts, ends) = (range.contains(&self.first), range.contains(&self.last));
        match (starts || range.start <= self.first, ends) {
            (true, true) => After::Nothing,
            (false, true) => After::Older,
            // The front goes; a middle that goes leaves the state as it is.
            (_, false) => After::Tip(Tip { first: if starts { range.end } else { self.first }, ..self }),
        }
    }

    fn moved(self, range: &Range<Pos>, op: &Op) -> After {
        let place = |pos: Pos| if range.contains(&pos) { op.moved(pos) } else { i64::from(pos.0) };
        let last = place(self.last);
        if last < 0 {
            // All that was in the range is gone.
            return self.removed(range);
        }
        if last >= i64::from(Pos::MAX.0) {
            return After::TooFar { pos: self.last, moved: last };
        }
        let first = place(self.first).clamp(0, last);
        After::Tip(Tip { first: Pos(first as i32), last: Pos(last as i32), ..self })
    }
}

impl Part for Recurrent {
    fn kind(&self) -> Kind {
        Kind::Recurrent
    }

    fn split(&self) -> Split {
        Split::Equal
    }

    fn admit(&mut self, op: &Op) -> Result<(), Error> {
        let unsupported = |op| Err(Error::Unsupported { op, kind: Kind::Recurrent });
        match op {
            Op::Copy { src, dst, range } => {
                if self.tips[dst.index()].is_some() {
                    return Err(Error::Occupied { seq: *dst });
                }
                let Some(tip) = self.tips[src.index()] else { return Ok(()) };
                let all = range.start <= tip.first && range.contains(&tip.last);
                let none = range.end <= tip.first || range.start > tip.last || range.is_empty();
                if all || none { Ok(()) } else { unsupported(Operation::Copy) }
            }
            Op::Remove { .. } | Op::Add { .. } | Op::Divide { .. } => match self.after(op) {
                Some((_, After::Older)) if matches!(op, Op::Remove { .. }) => unsupported(Operation::Remove),
                Some((_, After::Older)) => unsupported(Operation::Add),
                Some((seq, After::TooFar { pos, moved })) => Err(Error::Overtakes { seq, pos, moved }),
                _ => Ok(()),
            },
            Op::Keep { .. } | Op::Clear => Ok(()),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Copy { src, dst, range } => {
                let tip = self.tips[src.index()].filter(|tip| range.contains(&tip.last));
                self.set_tip(*dst, tip);
            }
            Op::Keep { seq } => {
                for other in (0..self.tips.len() as u32).map(SeqId).filter(|other| other != seq) {
                    self.set_tip(other, None);
                }
            }
            Op::Clear => (0..self.tips.len() as u32).for_each(|seq| self.set_tip(SeqId(seq), None)),
            Op::Remove { .. } | Op::Add { .. } | Op::Divide { .. } => match self.after(op) {
                Some((seq, After::Nothing)) => self.set_tip(seq, None),
                Some((seq, After::Tip(tip))) => self.set_tip(seq, Some(tip)),
                Some((_, After::Older | After::TooFar { .. })) | None => {}
            },
        }
    }

    fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.pos_max(seq)
    }

    fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.tips[seq.index()].map(|tip| tip.last)
    }

    fn reserve(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        self.reserve_all(batch, schedule).inspect_err(|_| self.forget_plan())
    }

    fn commit(&mut self) {
        for i in 0..self.holding.len() {
            let (id, held) = self.holding[i];
            self.keep(id, held);
        }
        for i in 0..self.staged.len() {
            let Staged { seq, tip, .. } = self.staged[i];
            self.set_tip(seq, Some(tip));
        }
        self.forget_plan();
    }

    fn undo(&mut self) {
        self.forget_plan();
    }

    fn can_cut(&self, seq: SeqId, pos: Pos) -> bool {
        self.tips[seq.index()].is_none_or(|tip| pos.0 == tip.last.0 + 1)
    }

    fn cut_from(&self, seq: SeqId) -> Pos {
        self.tips[seq.index()].map_or(Pos::ZERO, |tip| Pos(tip.last.0 + 1))
    }

    fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let tip = self.tips[seq.index()];
        tip.is_some_and(|tip| range.start <= tip.last && range.end > tip.first && !range.is_empty())
    }

    /// Nothing: `commit` kept it, because only the plan knew the state.
    fn hold(&mut self, _id: u32, _seq: SeqId, _pos: Pos) {}

    fn hold_tip(&mut self, id: u32, seq: SeqId, pos: Pos) {
        let tip = self.tips[seq.index()];
        self.keep(id, Held { slot: tip.map(|tip| tip.slot), first: tip.map_or(pos, |tip| tip.first) });
    }

    fn let_go(&mut self, id: u32) {
        if let Some(Held { slot: Some(slot), .. }) = self.held[id as usize].take() {
            self.release(slot);
        }
    }

    fn reserve_rewind(&mut self, seq: SeqId, from: &Restore) -> Result<(), Error> {
        if self.can_cut(seq, from.to) || from.to == Pos::ZERO {
            return Ok(());
        }
        let held = from.checkpoint.and_then(|id| self.held[id as usize]);
        let Some(Held { slot, first }) = held else {
            return Err(Error::Unsupported { op: Operation::Remove, kind: Kind::Recurrent });
        };
        let last = Pos(from.to.0 - 1);
        let index = u32::MAX;
        if from.rows.is_empty() {
            // An empty state has no tip.
            if let Some(slot) = slot {
                self.stage(Staged { seq, tip: Tip { slot, first, last }, index });
            }
            return Ok(());
        }
        let free = self.free.len() as u64;
        let write = self.free.pop().ok_or(Error::Full { what: "states", need: 1, free, seq })?;
        self.fresh.push(write);
        let mut read = slot;
        for start in from.rows.clone().step_by(from.n_ubatch.max(1) as usize) {
            let end = (start + from.n_ubatch.max(1)).min(from.rows.end);
            let first = from.rows.start;
            self.runs.push(StateRun {
                start: start - first,
                end: end - first,
                read,
                write,
                row: Some(start),
            });
            read = Some(write);
        }
        self.stage(Staged { seq, tip: Tip { slot: write, first, last }, index });
        Ok(())
    }

    fn rewind(&mut self, seq: SeqId, from: &Restore) {
        if self.can_cut(seq, from.to) {
            return self.forget_plan();
        }
        let tip = self.current(seq).map(|staged| staged.tip);
        self.set_tip(seq, tip);
        self.forget_plan();
    }

    fn states(&mut self, layer: usize, part: usize, runs: Range<usize>) -> Option<States<'_>> {
        let piece = self.layers.get_mut(layer)?.get_mut(part)?;
        let runs = self.runs.get(runs)?;
        let first = runs.first().map_or(0, |run| run.start);
        let Piece { len, ref mut states, input, ref mut journal } = *piece;
        Some(States { len, states, input, journal, runs, first })
    }

    fn runs(&self) -> &[StateRun] {
        &self.runs
    }

    fn as_states(&self) -> Option<&Recurrent> {
        Some(self)
    }

    fn as_states_mut(&mut self) -> Option<&mut Recurrent> {
        Some(self)
    }

    fn survey(&self, seq: SeqId, checkpoints: &[u32]) -> (survey::Layers, Vec<survey::Held>) {
        let bytes =
            |len: fn(&Piece) -> usize| 4 * self.layers.iter().flatten().map(len).sum::<usize>() as u64;
        let (state_bytes, row_bytes) = (bytes(|piece| piece.len), bytes(|piece| piece.input));
        let own = self.tips[seq.index()].map(|tip| tip.slot);
        let slots = checkpoints.iter().map(|&id| self.held[id as usize].and_then(|held| held.slot));
        let apart: BTreeSet<u32> = slots.clone().flatten().filter(|slot| Some(*slot) != own).collect();
        let users = |slot: u32| self.refs[slot as usize];
        let held = slots.map(|slot| survey::Held {
            state_bytes: if slot.is_some() { state_bytes } else { 0 },
            bytes_alone: if slot.map(users) == Some(1) { state_bytes } else { 0 },
            ..survey::Held::default()
        });
        let layers = survey::Layers {
            state_bytes,
            state_users: own.map_or(0, users),
            row_bytes,
            held_bytes: apart.len() as u64 * state_bytes,
            ..survey::Layers::new(Kind::Recurrent, self.layers.len())
        };
        (layers, held.collect())
    }

    #[cfg(any(test, feature = "oracle"))]
    fn state(&self, layer: usize, seq: SeqId) -> Option<&[f32]> {
        let piece = self.layers[layer].first()?;
        let slot = self.state_slot(seq)?;
        piece.states.chunks_exact(piece.len).nth(slot as usize)
    }

    #[cfg(any(test, feature = "oracle"))]
    fn state_slot(&self, seq: SeqId) -> Option<u32> {
        self.tips[seq.index()].map(|tip| tip.slot)
    }

    #[cfg(any(test, feature = "oracle"))]
    fn audit(&self) -> Result<(), alloc::string::String> {
        let mut refs = alloc::vec![0; self.refs.len()];
        self.tips.iter().flatten().for_each(|tip| refs[tip.slot as usize] += 1);
        self.held.iter().flatten().filter_map(|held| held.slot).for_each(|slot| refs[slot as usize] += 1);
        if refs != self.refs {
            return Err(alloc::format!("states have {:?} users, counted {refs:?}", self.refs));
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let unused = (0..refs.len() as u32).filter(|&slot| refs[slot as usize] == 0);
        if !unused.eq(free.iter().copied()) {
            return Err(alloc::format!("free states {free:?} with users {refs:?}"));
        }
        let left = self.staged.len()
            + self.holding.len()
            + self.fresh.len()
            + self.runs.len()
            + self.places.iter().flatten().count();
        if left == 0 { Ok(()) } else { Err("a plan left something behind".into()) }
    }
}
