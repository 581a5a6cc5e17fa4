//! Windowed retention: cells that no token sees any more are released, and checkpoints retain the
//! cells that would be seen from their position.
//!
//! A sequence is *whole* from a position on if no cell at that position or later was released. It
//! can be cut at a position if it still holds everything that the window shows from there.
//! Otherwise a rollback restores the cells of a checkpoint.

use super::KvCache;
use crate::cache::operation::{Move, Restore};
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

/// Cells of a sequence or of a checkpoint that are missing because they were released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Position below which cells may be missing; 0 if none are.
    pub whole_from: Pos,
    /// First position that the sequence had before cells were released.
    pub start: Pos,
}

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
    /// Cells of each sequence that were released.
    pub gone: Vec<Gone>,
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
        let gone = reserve::filled(params.n_seq_max as usize, Gone::default())?;
        Ok(WindowCells { window, margin: params.rollback.margin, gone, held, held_room })
    }

    /// Return the most cells of one sequence, with a batch of `n_batch` tokens on top.
    pub fn n_cells(window: Window, params: &Params) -> u32 {
        let kept = window.size().saturating_add(params.rollback.margin);
        kept.saturating_add(params.n_batch).saturating_add(2 * BLOCK_CELLS as u32)
    }

    /// Return the table of each checkpoint.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self) -> impl Iterator<Item = &BlockTable> + Clone {
        self.held.iter().map(|(table, _)| table)
    }

    /// Return the first position that a sequence which ends at `end` retains.
    pub fn kept_from(&self, end: Pos) -> Pos {
        self.window.needed_from(end) - self.margin
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

    /// Return the position below which cells may be missing after a move.
    fn moved(&self, seq: SeqId, range: &Range<Pos>, by: Move) -> Pos {
        let whole_from = self.gone[seq.index()].whole_from;
        let last_gone = Pos(whole_from.0 - 1);
        if !range.contains(&last_gone) {
            return whole_from;
        }
        // The cells before the range do not move.
        let after_moved = (by.moved(last_gone) + 1).clamp(0, i64::from(Pos::MAX.0)) as i32;
        Pos(after_moved).max(range.start.min(whole_from))
    }

    /// Note what a sequence lacks after a move.
    pub fn move_by(&mut self, seq: SeqId, range: &Range<Pos>, by: Move) {
        self.gone[seq.index()] = Gone { whole_from: self.moved(seq, range, by), start: Pos::ZERO };
    }
}

impl KvCache {
    /// Return true if `seq` can be cut at `pos` and go on from there.
    pub fn is_whole(&self, seq: SeqId, pos: Pos) -> bool {
        let Some(window) = &self.window else { return true };
        let Gone { whole_from, start } = window.gone[seq.index()];
        if whole_from == Pos::ZERO || pos <= start {
            return true;
        }
        let table = self.table(seq);
        let last = table.pos_before(&self.cells.pool, table.lower_bound(&self.cells.pool, pos));
        last.is_some_and(|last| window.window.needed_from(Pos(last.0 + 1)) >= whole_from)
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
    pub(super) fn check_whole_after(&self, seq: SeqId, range: &Range<Pos>, by: Move) -> Result<(), Error> {
        let (Some(window), Some(last)) = (&self.window, self.table(seq).last_pos(&self.cells.pool)) else {
            return Ok(());
        };
        let last = if range.contains(&last) { by.moved(last) } else { i64::from(last.0) };
        let end = Pos((last + 1).clamp(0, i64::from(Pos::MAX.0)) as i32);
        let is_whole = window.window.needed_from(end) >= window.moved(seq, range, by);
        if window.gone[seq.index()].whole_from == Pos::ZERO || is_whole {
            return Ok(());
        }
        let op = if matches!(by, Move::Divide(_)) { Operation::Divide } else { Operation::Add };
        Err(Error::Unsupported { op, kind: Kind::Kv(Retention::Window) })
    }

    /// Return the positions of a sequence without holes from which on it can no longer be cut, and
    /// from which on it can again.
    pub fn cut_points(&self, seq: SeqId) -> [Pos; 2] {
        self.window.as_ref().map_or([Pos::ZERO; 2], |window| {
            let Gone { whole_from, start } = window.gone[seq.index()];
            [start.next(), window.window.whole_after(whole_from)]
        })
    }

    /// Return true if cells in a range of positions may have existed and been released.
    pub(super) fn may_have_gone(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let Some(window) = &self.window else { return false };
        let Gone { whole_from, start } = window.gone[seq.index()];
        range.start < whole_from && range.end > start && !range.is_empty()
    }

    /// Retain the cells that are seen from `pos`, or all cells of `seq`, as checkpoint `id`.
    pub fn hold_window(&mut self, id: u32, seq: SeqId, pos: Pos, all: bool) {
        let Some(window) = &mut self.window else { return };
        let table = &self.cells.tables[seq.index()];
        let from = if all { window.gone[seq.index()].whole_from } else { window.window.needed_from(pos) };
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
        let gone = self.window.as_ref().map_or_else(Gone::default, |window| window.gone[seq.index()]);
        let held = self.window.as_ref().zip(from.checkpoint);
        let held = held.and_then(|(window, id)| window.held.get(id as usize));
        let is_better = |held: &(BlockTable, Pos)| {
            !held.0.is_empty() && held.1 < gone.whole_from && self.table_ends_at(&held.0, from.to)
        };
        if self.is_whole(seq, from.to) && !held.is_some_and(is_better) {
            return self.remove(seq, &(from.to..Pos::MAX));
        }
        let table = &mut self.cells.tables[seq.index()];
        table.clear(&mut self.cells.pool);
        let Some(window) = &mut self.window else { return };
        window.gone[seq.index()] = Gone::default();
        let held = from.checkpoint.and_then(|id| window.held.get(id as usize));
        if let Some((held, held_from)) = held.filter(|(held, _)| !held.is_empty()) {
            table.share(&mut self.cells.pool, held, 0..u32::MAX);
            window.gone[seq.index()] = Gone { whole_from: *held_from, ..gone };
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
        let gone = &mut window.gone[seq.index()];
        if gone.whole_from == Pos::ZERO {
            gone.start = table.first_pos(&self.cells.pool).unwrap_or_default();
        }
        table.kill(&mut self.cells.pool, 0..slot);
        table.close_gaps(0..slot);
        // Other cells at that position may remain, since divided positions are shared.
        gone.whole_from = Pos(last_gone.0 + 1);
    }
}
