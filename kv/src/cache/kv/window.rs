//! Windowed retention: cells that no token sees any more are released, and checkpoints retain the
//! cells that would be seen from their position.
//!
//! A sequence is *whole* from a position on if no cell at that position or later was released. It
//! can be cut at a position if it still holds everything that the window shows from there.
//! Otherwise a rollback restores the cells of a checkpoint.

use super::KvCache;
use crate::cache::charges::Charge;
use crate::cache::operation::{Move, Restore};
use crate::cache::paged::PagedCells;
use crate::cache::table::{BlockTable, Gone};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Operation, Retention};
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

impl KvCache {
    /// Return true if `seq` can be cut at `pos` and go on from there.
    pub fn is_whole(&self, seq: SeqId, pos: Pos) -> bool {
        let Some(window) = &self.cells.window else { return true };
        let table = self.table(seq);
        let Gone { whole_from, start } = table.gone;
        if whole_from == Pos::ZERO || pos <= start {
            return true;
        }
        let last = table.pos_before(&self.cells.pool, table.lower_bound(&self.cells.pool, pos));
        last.is_some_and(|last| window.window.needed_from(Pos(last.0 + 1)) >= whole_from)
    }

    /// Check that `seq` has the cells that it needs to end at `end`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the window shows released cells from there.
    pub(super) fn check_whole(&self, op: Operation, seq: SeqId, end: Pos) -> Result<(), Error> {
        let is_cut = self.pos_max(seq).is_some_and(|last| end <= last);
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
        let (Some(window), Some(last)) = (&self.cells.window, self.pos_max(seq)) else { return Ok(()) };
        let last = if range.contains(&last) { by.moved(last) } else { i64::from(last.0) };
        let end = Pos((last + 1).clamp(0, i64::from(Pos::MAX.0)) as i32);
        let gone = self.table(seq).gone;
        let is_whole = window.window.needed_from(end) >= gone.moved(range, by).whole_from;
        if gone.whole_from == Pos::ZERO || is_whole {
            return Ok(());
        }
        let op = if matches!(by, Move::Divide(_)) { Operation::Divide } else { Operation::Add };
        Err(Error::Unsupported { op, kind: Kind::Kv(Retention::Window) })
    }

    /// Return the positions of a sequence without holes from which on it can no longer be cut, and
    /// from which on it can again.
    pub fn cut_points(&self, seq: SeqId) -> [Pos; 2] {
        self.cells.window.as_ref().map_or([Pos::ZERO; 2], |window| {
            let Gone { whole_from, start } = self.table(seq).gone;
            [start.next(), window.window.whole_after(whole_from)]
        })
    }

    /// Retain the cells that are seen from `pos`, or all cells of `seq`, as checkpoint `id`.
    pub fn hold_window(&mut self, id: u32, seq: SeqId, pos: Pos, all: bool) {
        let PagedCells { window: Some(window), tables, pool, .. } = &mut self.cells else { return };
        let table = &tables[seq.index()];
        let whole_from = if all { table.gone.whole_from } else { window.window.needed_from(pos) };
        let slots = table.slots(pool, &(whole_from..pos));
        window.change_held(id, |held| {
            // A sequence that was rolled back to the checkpoint may have fewer cells than a fork.
            if all && !held.is_empty() && held.gone.whole_from <= whole_from {
                return;
            }
            held.clear(pool);
            held.share(pool, table, slots);
            if !held.is_empty() {
                held.gone = Gone { whole_from, start: Pos::ZERO };
            }
        });
    }

    /// Release the cells of checkpoint `id` that are not seen from `pos`.
    pub fn shrink_window(&mut self, id: u32, pos: Pos) {
        let PagedCells { window: Some(window), pool, .. } = &mut self.cells else { return };
        let needed = window.window.needed_from(pos);
        window.change_held(id, |held| {
            let slots = held.slots(pool, &(Pos::ZERO..needed));
            held.kill(pool, slots.clone());
            held.close_gaps(slots);
            if !held.is_empty() {
                held.gone.whole_from = held.gone.whole_from.max(needed);
            }
        });
    }

    /// Release the cells of checkpoint `id`.
    pub fn drop_checkpoint(&mut self, id: u32) {
        if let Some(window) = &mut self.cells.window {
            window.drop_held(id, &mut self.cells.pool);
        }
    }

    /// Charge the cells of checkpoint `id` to the budget, or no longer.
    pub fn charge(&mut self, id: u32, charge: Charge, is_charged: bool) {
        self.cells.window.iter_mut().for_each(|window| window.charge(id, charge, is_charged));
    }

    /// Return true if checkpoints retain more cells than the budget pays for.
    pub fn exceeds(&self, charge: Charge) -> bool {
        self.cells.window.as_ref().is_some_and(|window| window.exceeds(charge))
    }

    /// Roll a sequence back to `from.to`.
    ///
    /// Its end is cut off if it holds what is seen from there; otherwise it gets the cells of the
    /// checkpoint.
    pub fn roll_back(&mut self, seq: SeqId, from: &Restore) {
        let is_whole = self.is_whole(seq, from.to);
        let PagedCells { window, tables, pool, .. } = &mut self.cells;
        let held = window.as_ref().zip(from.checkpoint);
        let held = held.and_then(|(window, id)| window.held.get(id as usize)).filter(|held| !held.is_empty());
        let table = &mut tables[seq.index()];
        let gone = table.gone;
        // A checkpoint that ends at the position needs no token to be replayed after it.
        let is_better = |held: &BlockTable| {
            held.gone.whole_from < gone.whole_from && held.last_pos(pool).map(Pos::next) == Some(from.to)
        };
        if is_whole && !held.is_some_and(is_better) {
            return self.remove(seq, &(from.to..Pos::MAX));
        }
        table.clear(pool);
        if let Some(held) = held {
            table.share(pool, held, 0..u32::MAX);
            table.gone.start = gone.start;
        }
    }

    /// Release the blocks of a sequence that are behind its window and margin.
    pub(super) fn release_behind(&mut self, seq: SeqId) {
        let PagedCells { window: Some(window), tables, pool, .. } = &mut self.cells else { return };
        let table = &mut tables[seq.index()];
        let Some(last) = table.last_pos(pool) else { return };
        let keep = window.kept_from(Pos(last.0 + 1));
        // Only whole blocks are released, since removing some cells of a block frees nothing.
        let slot = table.lower_bound(pool, keep) / BLOCK_CELLS as u32 * BLOCK_CELLS as u32;
        let Some(last_gone) = table.pos_before(pool, slot) else { return };
        if table.gone.whole_from == Pos::ZERO {
            table.gone.start = table.pos_from(pool, 0).unwrap_or_default();
        }
        table.kill(pool, 0..slot);
        table.close_gaps(0..slot);
        // Other cells at that position may remain, since divided positions are shared.
        table.gone.whole_from = Pos(last_gone.0 + 1);
    }
}
