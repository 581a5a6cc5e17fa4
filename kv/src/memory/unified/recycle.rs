//! Layers with a window: cells too old to be seen go back to the pool, and checkpoints keep those that would be seen
//! from where they are.

use super::Unified;
use crate::error::Error;
use crate::extent::{SPAN, Table};
use crate::ids::{Pos, SeqId};
use crate::layer::{Params, Window};
use crate::memory::{Kind, Op, Operation, Restore};
use crate::room;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// What a windowed part does with old cells.
pub(in crate::memory) struct Recycle {
    pub window: Window,
    /// How many cells older than the window stay.
    pub margin: u32,
    /// For each sequence, the position below which cells may be gone; 0: none are.
    whole_from: Vec<Pos>,
    /// For each sequence whose cells are gone, the position it began at.
    start: Vec<Pos>,
    /// For each checkpoint, the cells that are seen from there, and the position from which on they are there.
    held: Vec<(Table, Pos)>,
    /// Entries that each of them has room for.
    pub held_room: usize,
}

impl Recycle {
    pub fn new(window: Window, params: &Params, n_checkpoints: u32) -> Result<Recycle, Error> {
        let mut held: Vec<(Table, Pos)> = (0..n_checkpoints).map(|_| Default::default()).collect();
        let n_cells = window.size().saturating_add(params.timeline.margin) as usize;
        let held_room = n_cells.div_ceil(BLOCK_CELLS).min(1 << 16) + 2 + SPAN;
        held.iter_mut().try_for_each(|(table, _)| table.make_room(held_room))?;
        let whole_from = room::filled(params.n_seq_max as usize, Pos::ZERO)?;
        let (margin, start) = (params.timeline.margin, whole_from.clone());
        Ok(Recycle { window, margin, start, whole_from, held, held_room })
    }

    /// Entries of a sequence's table at most, with a batch of `n_batch` tokens on top.
    pub fn n_cells(window: Window, params: &Params) -> u32 {
        let kept = window.size().saturating_add(params.timeline.margin);
        kept.saturating_add(params.n_batch).saturating_add(2 * BLOCK_CELLS as u32)
    }

    /// For each checkpoint, the cells that are seen from there.
    pub fn held(&self) -> impl Iterator<Item = &Table> + Clone {
        self.held.iter().map(|(table, _)| table)
    }

    /// The first position to keep for a sequence that ends at `end`: what is seen from there, and at least the last token, so
    /// that it is known where the sequence ends.
    pub fn needed_from(&self, end: Pos) -> Pos {
        self.window.first(end).min(Pos(end.0 - 1)).max(Pos::ZERO)
    }

    /// The first position that stays of a sequence that ends at `end`.
    pub fn kept_from(&self, end: Pos) -> Pos {
        Pos(self.needed_from(end).0.saturating_sub_unsigned(self.margin).max(0))
    }

    /// Below which position cells of a sequence may be gone, and where it began.
    pub fn gone(&self, seq: SeqId) -> (Pos, Pos) {
        (self.whole_from[seq.index()], self.start[seq.index()])
    }

    pub fn set_gone(&mut self, seq: SeqId, whole_from: Pos, start: Pos) {
        self.whole_from[seq.index()] = whole_from;
        self.start[seq.index()] = start;
    }

    /// The cells of a checkpoint, and the position from which on they are there.
    pub fn held_for(&self, id: u32) -> Option<(&Table, Pos)> {
        self.held.get(id as usize).map(|(table, from)| (table, *from))
    }

    /// Gives a checkpoint cells; returns those it had.
    pub fn hold(&mut self, id: u32, table: Table, from: Pos) -> Table {
        match self.held.get_mut(id as usize) {
            Some(held) => core::mem::replace(held, (table, from)).0,
            None => table,
        }
    }

    pub fn clear(&mut self, seq: SeqId) {
        self.whole_from[seq.index()] = Pos::ZERO;
        self.start[seq.index()] = Pos::ZERO;
    }

    pub fn copy(&mut self, src: SeqId, dst: SeqId) {
        self.whole_from[dst.index()] = self.whole_from[src.index()];
        self.start[dst.index()] = self.start[src.index()];
    }

    /// Below which position cells may be gone after a move.
    fn moved(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Pos {
        let whole_from = self.whole_from[seq.index()];
        let last_gone = Pos(whole_from.0 - 1);
        if !range.contains(&last_gone) {
            return whole_from;
        }
        // What lies before the range stays where it is.
        let after_moved = (op.moved(last_gone) + 1).clamp(0, i64::from(Pos::MAX.0)) as i32;
        Pos(after_moved).max(range.start.min(whole_from))
    }

    pub fn move_by(&mut self, seq: SeqId, range: &Range<Pos>, op: &Op) {
        self.whole_from[seq.index()] = self.moved(seq, range, op);
        self.start[seq.index()] = Pos::ZERO;
    }
}

impl Unified {
    /// Whether `seq` can be cut at `pos` and go on from there.
    pub(super) fn is_whole(&self, seq: SeqId, pos: Pos) -> bool {
        let Some(recycle) = &self.recycle else { return true };
        let (whole_from, start) = (recycle.whole_from[seq.index()], recycle.start[seq.index()]);
        if whole_from == Pos::ZERO || pos <= start {
            return true;
        }
        let table = self.table(seq);
        let last = table.pos_before(&self.pool, table.lower_bound(&self.pool, pos));
        last.is_some_and(|last| recycle.needed_from(Pos(last.0 + 1)) >= whole_from)
    }

    /// An operation that makes `seq` end at `end` needs the cells seen from there.
    pub(super) fn check_whole(&self, op: Operation, seq: SeqId, end: Pos) -> Result<(), Error> {
        let is_cut = self.table(seq).last_pos(&self.pool).is_some_and(|last| end <= last);
        if is_cut && !self.is_whole(seq, end) {
            return Err(Error::Unsupported { op, kind: Kind::Windowed });
        }
        Ok(())
    }

    /// After a move, what is gone must still lie behind the window.
    pub(super) fn check_whole_after(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Result<(), Error> {
        let (Some(recycle), Some(last)) = (&self.recycle, self.table(seq).last_pos(&self.pool)) else {
            return Ok(());
        };
        let last = if range.contains(&last) { op.moved(last) } else { i64::from(last.0) };
        let end = Pos((last + 1).clamp(0, i64::from(Pos::MAX.0)) as i32);
        let is_whole = recycle.needed_from(end) >= recycle.moved(seq, range, op);
        if recycle.whole_from[seq.index()] == Pos::ZERO || is_whole {
            return Ok(());
        }
        let op = if matches!(op, Op::Divide { .. }) { Operation::Divide } else { Operation::Add };
        Err(Error::Unsupported { op, kind: Kind::Windowed })
    }

    /// The first position from which on a sequence without holes can be cut anywhere.
    pub(super) fn whole_after(&self, seq: SeqId) -> Pos {
        let Some(recycle) = &self.recycle else { return Pos::ZERO };
        let whole_from = recycle.whole_from[seq.index()];
        if whole_from == Pos::ZERO {
            return Pos::ZERO;
        }
        let (mut low, mut high) =
            (whole_from.0, whole_from.0.saturating_add_unsigned(recycle.window.size()).saturating_add(1));
        while low < high {
            let middle = low.midpoint(high);
            if recycle.needed_from(Pos(middle)) >= whole_from { high = middle } else { low = middle + 1 }
        }
        Pos(low)
    }

    /// Whether cells in a range of positions may have been there and gone.
    pub(super) fn may_have_gone(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let Some(recycle) = &self.recycle else { return false };
        let (start, whole_from) = (recycle.start[seq.index()], recycle.whole_from[seq.index()]);
        range.start < whole_from && range.end > start && !range.is_empty()
    }

    /// Keeps the cells that are seen from `pos`, or all that are there, as checkpoint `id`.
    pub(super) fn hold_window(&mut self, id: u32, seq: SeqId, pos: Pos, all: bool) {
        let Some(recycle) = &mut self.recycle else { return };
        let table = &self.tables[seq.index()];
        let from = if all { recycle.whole_from[seq.index()] } else { recycle.needed_from(pos) };
        let slots = table.slots(&self.pool, &(from..pos));
        let (held, held_from) = &mut recycle.held[id as usize];
        held.clear(&mut self.pool);
        *held_from = Pos::ZERO;
        if !slots.is_empty() {
            *held_from = from;
            held.share(&mut self.pool, table, slots);
        }
    }

    pub(super) fn let_window_go(&mut self, id: u32) {
        if let Some(recycle) = &mut self.recycle {
            recycle.held[id as usize].0.clear(&mut self.pool);
        }
    }

    /// Takes a sequence back to `from.to`: by cutting its end off, or, if what is seen from there is gone, from the
    /// checkpoint.
    pub(super) fn restore(&mut self, seq: SeqId, from: &Restore) {
        let held = self.recycle.as_ref().zip(from.checkpoint);
        let held = held.and_then(|(recycle, id)| recycle.held.get(id as usize));
        let is_better = |held: &(Table, Pos)| {
            let whole_from =
                self.recycle.as_ref().map_or(Pos::ZERO, |recycle| recycle.whole_from[seq.index()]);
            !held.0.is_empty() && held.1 < whole_from && self.table_ends_at(&held.0, from.to)
        };
        if self.is_whole(seq, from.to) && !held.is_some_and(is_better) {
            return self.remove(seq, &(from.to..Pos::MAX));
        }
        let start = self.recycle.as_ref().map_or(Pos::ZERO, |recycle| recycle.start[seq.index()]);
        let table = &mut self.tables[seq.index()];
        table.clear(&mut self.pool);
        let Some(recycle) = &mut self.recycle else { return };
        recycle.clear(seq);
        let held = from.checkpoint.and_then(|id| recycle.held.get(id as usize));
        if let Some((held, held_from)) = held.filter(|(held, _)| !held.is_empty()) {
            table.share(&mut self.pool, held, 0..u32::MAX);
            recycle.whole_from[seq.index()] = *held_from;
            recycle.start[seq.index()] = start;
        }
    }

    /// Whether a checkpoint's cells reach to `end`, so that no token after it has to be replayed.
    fn table_ends_at(&self, table: &Table, end: Pos) -> bool {
        table.last_pos(&self.pool).is_some_and(|last| last.0 + 1 == end.0)
    }

    /// Gives back the blocks of a sequence that lie behind its window and margin.
    pub(super) fn recycle(&mut self, seq: SeqId) {
        let Some(recycle) = &mut self.recycle else { return };
        let table = &mut self.tables[seq.index()];
        let Some(last) = table.last_pos(&self.pool) else { return };
        let keep = recycle.kept_from(Pos(last.0 + 1));
        // Whole blocks only: a partly dead one frees nothing.
        let slot = table.lower_bound(&self.pool, keep) / BLOCK_CELLS as u32 * BLOCK_CELLS as u32;
        let Some(last_gone) = table.pos_before(&self.pool, slot) else { return };
        if recycle.whole_from[seq.index()] == Pos::ZERO {
            recycle.start[seq.index()] = table.first_pos(&self.pool).unwrap_or_default();
        }
        table.kill(&mut self.pool, 0..slot);
        table.close_gaps(0..slot);
        // Others at that position may be left: divided positions are shared.
        recycle.whole_from[seq.index()] = Pos(last_gone.0 + 1);
    }
}
