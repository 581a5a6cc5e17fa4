//! Windowed retention: cells that no token sees any more are released, and checkpoints retain the
//! cells that would be seen from their position.
//!
//! A sequence is *whole* from a position on if no cell at that position or later was released. It
//! can be cut at a position if it still holds everything that the window shows from there.
//! Otherwise a rollback restores the cells of a checkpoint.

use super::KvCache;
use crate::cache::operation::{Op, Restore};
use crate::cache::table::{BlockTable, SPAN};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Operation, Retention};
use crate::layer::Window;
use crate::params::Params;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

/// Bookkeeping of a windowed cache: what was released of each sequence, and the cells of each
/// checkpoint.
///
/// A checkpoint shares the blocks of the sequence that it was made of; it copies nothing, and its
/// blocks stay when the sequence releases them.
pub(crate) struct WindowCells {
    /// Window of the layers.
    pub window: Window,
    /// Number of cells older than the window that stay at least.
    pub margin: u32,
    /// Position of each sequence below which cells may have been released; 0 if none were.
    whole_from: Vec<Pos>,
    /// First position that each sequence had before cells were released.
    start: Vec<Pos>,
    /// Cells of each checkpoint, and the position from which on they are complete.
    held: Vec<(BlockTable, Pos)>,
    /// Entries for which each table of a checkpoint has room from the start.
    pub held_room: usize,
}

impl WindowCells {
    /// Make the bookkeeping of sequences and checkpoints that hold nothing.
    pub fn new(window: Window, params: &Params, n_checkpoints: u32) -> Result<WindowCells, Error> {
        let mut held: Vec<(BlockTable, Pos)> = (0..n_checkpoints).map(|_| Default::default()).collect();
        let n_cells = window.size().saturating_add(params.rollback.margin) as usize;
        let held_room = n_cells.div_ceil(BLOCK_CELLS).min(1 << 16) + 2 + SPAN;
        held.iter_mut().try_for_each(|(table, _)| table.make_room(held_room))?;
        let whole_from = reserve::filled(params.n_seq_max as usize, Pos::ZERO)?;
        let (margin, start) = (params.rollback.margin, whole_from.clone());
        Ok(WindowCells { window, margin, start, whole_from, held, held_room })
    }

    /// Return the most cells of one sequence, with a batch of `n_batch` tokens on top.
    pub fn n_cells(window: Window, params: &Params) -> u32 {
        let kept = window.size().saturating_add(params.rollback.margin);
        kept.saturating_add(params.n_batch).saturating_add(2 * BLOCK_CELLS as u32)
    }

    /// Return the table of each checkpoint.
    pub fn held(&self) -> impl Iterator<Item = &BlockTable> + Clone {
        self.held.iter().map(|(table, _)| table)
    }

    /// Return the first position that a sequence which ends at `end` needs: what the next token
    /// sees, and at least the last token, from which the end of the sequence is known.
    pub fn needed_from(&self, end: Pos) -> Pos {
        self.window.first(end).min(Pos(end.0 - 1)).max(Pos::ZERO)
    }

    /// Return the first position that a sequence which ends at `end` retains.
    pub fn kept_from(&self, end: Pos) -> Pos {
        Pos(self.needed_from(end).0.saturating_sub_unsigned(self.margin).max(0))
    }

    /// Return the position below which cells of a sequence may have been released, and its former
    /// first position.
    pub fn gone(&self, seq: SeqId) -> (Pos, Pos) {
        (self.whole_from[seq.index()], self.start[seq.index()])
    }

    /// Set what `gone` returns.
    pub fn set_gone(&mut self, seq: SeqId, whole_from: Pos, start: Pos) {
        self.whole_from[seq.index()] = whole_from;
        self.start[seq.index()] = start;
    }

    /// Return the cells of a checkpoint, and the position from which on they are complete.
    pub fn held_for(&self, id: u32) -> Option<(&BlockTable, Pos)> {
        self.held.get(id as usize).map(|(table, from)| (table, *from))
    }

    /// Replace the cells of a checkpoint and return the former ones.
    pub fn hold(&mut self, id: u32, table: BlockTable, from: Pos) -> BlockTable {
        match self.held.get_mut(id as usize) {
            Some(held) => core::mem::replace(held, (table, from)).0,
            None => table,
        }
    }

    /// Note that a sequence lacks no cells.
    pub fn clear(&mut self, seq: SeqId) {
        self.whole_from[seq.index()] = Pos::ZERO;
        self.start[seq.index()] = Pos::ZERO;
    }

    /// Note that `dst` lacks the cells that `src` lacks.
    pub fn copy(&mut self, src: SeqId, dst: SeqId) {
        self.whole_from[dst.index()] = self.whole_from[src.index()];
        self.start[dst.index()] = self.start[src.index()];
    }

    /// Return the position below which cells may be missing after a move.
    fn moved(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Pos {
        let whole_from = self.whole_from[seq.index()];
        let last_gone = Pos(whole_from.0 - 1);
        if !range.contains(&last_gone) {
            return whole_from;
        }
        // The cells before the range do not move.
        let after_moved = (op.moved(last_gone) + 1).clamp(0, i64::from(Pos::MAX.0)) as i32;
        Pos(after_moved).max(range.start.min(whole_from))
    }

    /// Note what a sequence lacks after a move.
    pub fn move_by(&mut self, seq: SeqId, range: &Range<Pos>, op: &Op) {
        self.whole_from[seq.index()] = self.moved(seq, range, op);
        self.start[seq.index()] = Pos::ZERO;
    }
}

impl KvCache {
    /// Return true if `seq` can be cut at `pos` and go on from there.
    pub fn is_whole(&self, seq: SeqId, pos: Pos) -> bool {
        let Some(window) = &self.window else { return true };
        let (whole_from, start) = (window.whole_from[seq.index()], window.start[seq.index()]);
        if whole_from == Pos::ZERO || pos <= start {
            return true;
        }
        let table = self.table(seq);
        let last = table.pos_before(&self.cells.pool, table.lower_bound(&self.cells.pool, pos));
        last.is_some_and(|last| window.needed_from(Pos(last.0 + 1)) >= whole_from)
    }

    /// Check that `seq` has the cells that it needs to end at `end`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the window shows released cells from there.
    pub(super) fn check_whole(&self, op: Operation, seq: SeqId, end: Pos) -> Result<(), Error> {
        let is_cut = self.table(seq).last_pos(&self.cells.pool).is_some_and(|last| end <= last);
        if is_cut && !self.is_whole(seq, end) {
            return Err(Error::Unsupported { op, kind: Kind::Kv(Retention::Window) });
        }
        Ok(())
    }

    /// Check that the cells that a sequence lacks are behind the window after a move, too.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the move brings released cells back into the window.
    pub(super) fn check_whole_after(&self, seq: SeqId, range: &Range<Pos>, op: &Op) -> Result<(), Error> {
        let (Some(window), Some(last)) = (&self.window, self.table(seq).last_pos(&self.cells.pool)) else {
            return Ok(());
        };
        let last = if range.contains(&last) { op.moved(last) } else { i64::from(last.0) };
        let end = Pos((last + 1).clamp(0, i64::from(Pos::MAX.0)) as i32);
        let is_whole = window.needed_from(end) >= window.moved(seq, range, op);
        if window.whole_from[seq.index()] == Pos::ZERO || is_whole {
            return Ok(());
        }
        let op = if matches!(op, Op::Divide { .. }) { Operation::Divide } else { Operation::Add };
        Err(Error::Unsupported { op, kind: Kind::Kv(Retention::Window) })
    }

    /// Return the first position from which on a sequence without holes can be cut anywhere.
    pub fn whole_after(&self, seq: SeqId) -> Pos {
        let Some(window) = &self.window else { return Pos::ZERO };
        let whole_from = window.whole_from[seq.index()];
        if whole_from == Pos::ZERO {
            return Pos::ZERO;
        }
        let (mut low, mut high) =
            (whole_from.0, whole_from.0.saturating_add_unsigned(window.window.size()).saturating_add(1));
        while low < high {
            let middle = low.midpoint(high);
            if window.needed_from(Pos(middle)) >= whole_from { high = middle } else { low = middle + 1 }
        }
        Pos(low)
    }

    /// Return true if cells in a range of positions may have existed and been released.
    pub(super) fn may_have_gone(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let Some(window) = &self.window else { return false };
        let (start, whole_from) = (window.start[seq.index()], window.whole_from[seq.index()]);
        range.start < whole_from && range.end > start && !range.is_empty()
    }

    /// Retain the cells that are seen from `pos`, or all cells of `seq`, as checkpoint `id`.
    pub fn hold_window(&mut self, id: u32, seq: SeqId, pos: Pos, all: bool) {
        let Some(window) = &mut self.window else { return };
        let table = &self.cells.tables[seq.index()];
        let from = if all { window.whole_from[seq.index()] } else { window.needed_from(pos) };
        let slots = table.slots(&self.cells.pool, &(from..pos));
        let (held, held_from) = &mut window.held[id as usize];
        held.clear(&mut self.cells.pool);
        *held_from = Pos::ZERO;
        if !slots.is_empty() {
            *held_from = from;
            held.share(&mut self.cells.pool, table, slots);
        }
    }

    /// Release the cells of checkpoint `id`.
    pub fn drop_checkpoint(&mut self, id: u32) {
        if let Some(window) = &mut self.window {
            window.held[id as usize].0.clear(&mut self.cells.pool);
        }
    }

    /// Roll a sequence back to `from.to`.
    ///
    /// Its end is cut off if it holds what is seen from there; otherwise it gets the cells of the
    /// checkpoint.
    pub fn roll_back(&mut self, seq: SeqId, from: &Restore) {
        self.restore(seq, from);
        self.forget_if_empty(seq);
    }

    /// Restore the cells of a sequence; its bookkeeping may say that an empty sequence lacks cells
    /// afterwards.
    fn restore(&mut self, seq: SeqId, from: &Restore) {
        let held = self.window.as_ref().zip(from.checkpoint);
        let held = held.and_then(|(window, id)| window.held.get(id as usize));
        let is_better = |held: &(BlockTable, Pos)| {
            let whole_from = self.window.as_ref().map_or(Pos::ZERO, |window| window.whole_from[seq.index()]);
            !held.0.is_empty() && held.1 < whole_from && self.table_ends_at(&held.0, from.to)
        };
        if self.is_whole(seq, from.to) && !held.is_some_and(is_better) {
            return self.remove(seq, &(from.to..Pos::MAX));
        }
        let start = self.window.as_ref().map_or(Pos::ZERO, |window| window.start[seq.index()]);
        let table = &mut self.cells.tables[seq.index()];
        table.clear(&mut self.cells.pool);
        let Some(window) = &mut self.window else { return };
        window.clear(seq);
        let held = from.checkpoint.and_then(|id| window.held.get(id as usize));
        if let Some((held, held_from)) = held.filter(|(held, _)| !held.is_empty()) {
            table.share(&mut self.cells.pool, held, 0..u32::MAX);
            window.whole_from[seq.index()] = *held_from;
            window.start[seq.index()] = start;
        }
    }

    /// Return true if the cells of a checkpoint end at `end`, so that no token has to be replayed
    /// after it.
    fn table_ends_at(&self, table: &BlockTable, end: Pos) -> bool {
        table.last_pos(&self.cells.pool).is_some_and(|last| last.0 + 1 == end.0)
    }

    /// Release the blocks of a sequence that are behind its window and margin.
    pub(super) fn release_behind(&mut self, seq: SeqId) {
        let Some(window) = &mut self.window else { return };
        let table = &mut self.cells.tables[seq.index()];
        let Some(last) = table.last_pos(&self.cells.pool) else { return };
        let keep = window.kept_from(Pos(last.0 + 1));
        // Only whole blocks are released, since removing some cells of a block frees nothing.
        let slot = table.lower_bound(&self.cells.pool, keep) / BLOCK_CELLS as u32 * BLOCK_CELLS as u32;
        let Some(last_gone) = table.pos_before(&self.cells.pool, slot) else { return };
        if window.whole_from[seq.index()] == Pos::ZERO {
            window.start[seq.index()] = table.first_pos(&self.cells.pool).unwrap_or_default();
        }
        table.kill(&mut self.cells.pool, 0..slot);
        table.close_gaps(0..slot);
        // Other cells at that position may remain, since divided positions are shared.
        window.whole_from[seq.index()] = Pos(last_gone.0 + 1);
    }
}
