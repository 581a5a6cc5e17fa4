//! Operations on the sequences of a KV cache.
//!
//! Removals and copies change tables and counts alone. A move changes positions, and the keys that
//! carry them (K-shift), so blocks with other users are copied first.

use super::KvCache;
use crate::cache::operation::{Move, Op};
use crate::cache::table::bits;
use crate::error::Error;
use crate::external::{CellCopy, Change, KeyShift};
use crate::ids::{Pos, SeqId};
use crate::kind::Operation;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use core::ops::Range;

impl KvCache {
    /// Check that `op` can be done, and make the room that it takes.
    ///
    /// # Errors
    /// - [`Error::Occupied`] if the target of a copy has cells.
    /// - [`Error::Unsupported`] if the window needs cells that were released.
    /// - [`Error::Overtakes`] if positions would no longer ascend.
    /// - [`Error::Full`] if too few blocks are free for copies of shared ones.
    pub fn admit(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Copy { src, dst, range } => {
                if !self.table(*dst).is_empty() {
                    return Err(Error::Occupied { seq: *dst });
                }
                self.check_whole(Operation::Copy, *src, range.end)?;
                let n = self.table(*src).extents().len();
                self.cells.tables[dst.index()].make_room(n)
            }
            Op::Move { seq, range, by } => {
                self.check_whole_after(*seq, range, *by)?;
                self.admit_move(*seq, range, *by)
            }
            Op::Remove { seq, range } if self.pos_max(*seq) < Some(range.end) => {
                self.check_whole(Operation::Remove, *seq, range.start)
            }
            Op::Remove { .. } => Ok(()),
        }
    }

    /// Do an operation that `admit` allowed.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Remove { seq, range } => self.remove(*seq, range),
            Op::Copy { src, dst, range } => {
                let slots = self.table(*src).slots(&self.cells.pool, range);
                self.cells.share(*src, *dst, slots);
            }
            Op::Move { seq, range, by } => self.apply_move(*seq, range, *by),
        }
    }

    /// Remove the cells of `seq` in a range of positions.
    pub(super) fn remove(&mut self, seq: SeqId, range: &Range<Pos>) {
        let table = &mut self.cells.tables[seq.index()];
        let slots = table.slots(&self.cells.pool, range);
        if !slots.is_empty() {
            table.kill(&mut self.cells.pool, slots.clone());
            table.close_gaps(slots);
        }
        table.gone = table.gone.without(range);
    }

    /// Return the slots that a move takes below zero, which are removed, and the slots that stay.
    fn moving(&self, seq: SeqId, range: &Range<Pos>, by: Move) -> (Range<u32>, Range<u32>) {
        let table = self.table(seq);
        let slots = table.slots(&self.cells.pool, range);
        let kept_from = match by {
            Move::Add(delta) if delta < 0 => Pos(delta.saturating_neg()).max(range.start),
            _ => range.start,
        };
        let kept = table.lower_bound(&self.cells.pool, kept_from).clamp(slots.start, slots.end);
        (slots.start..kept, kept..slots.end)
    }

    /// Check that a move keeps positions in order and that shared blocks can be copied.
    fn admit_move(&mut self, seq: SeqId, range: &Range<Pos>, by: Move) -> Result<(), Error> {
        let table = self.table(seq);
        let (_, kept) = self.moving(seq, range, by);
        let Some(first) = table.pos_from(&self.cells.pool, kept.start).filter(|_| !kept.is_empty()) else {
            return Ok(());
        };
        let last = table.pos_before(&self.cells.pool, kept.end).unwrap_or(first);
        let before = table.pos_before(&self.cells.pool, table.slots(&self.cells.pool, range).start);
        let after = table.pos_from(&self.cells.pool, kept.end);
        let (low, high) = (by.moved(first), by.moved(last));
        if before.is_some_and(|before| low < i64::from(before.0)) {
            return Err(Error::Overtakes { seq, pos: first, moved: low });
        }
        if high >= after.map_or(i64::from(Pos::MAX.0), |after| i64::from(after.0) + 1) {
            return Err(Error::Overtakes { seq, pos: last, moved: high });
        }
        let n_blocks = table.touched(kept.clone()).count();
        let shared =
            table.touched(kept).filter(|&(_, block, _)| self.cells.pool.refs(block) > 1).count() as u64;
        let free = u64::from(self.cells.pool.n_free());
        if shared > free {
            let cells = BLOCK_CELLS as u64;
            return Err(Error::Full { what: "cells", need: shared * cells, free: free * cells, seq });
        }
        match &mut self.cells.listed {
            // Each block is copied at most once, and each of its cells has at most one distance.
            Some(listed) => reserve::for_more(listed, n_blocks.saturating_mul(1 + BLOCK_CELLS)),
            None => Ok(()),
        }
    }

    /// Move the cells of a range: own the blocks, rotate the keys, set the positions, and remove
    /// what falls below zero.
    fn apply_move(&mut self, seq: SeqId, range: &Range<Pos>, by: Move) {
        let (dead, kept) = self.moving(seq, range, by);
        let mut moving: Vec<_> = self.table(seq).touched(kept).collect();
        for (index, block, _) in &mut moving {
            *block = self.own(seq, *index, *block);
        }
        let shifts = self.shifts(&moving, by);
        for layer in &self.cells.layers {
            layer.shift_keys(self.cells.bytes.of_mut(layer), &shifts);
        }
        if let Some(listed) = &mut self.cells.listed
            && self.cells.layers.iter().any(|layer| layer.rope.is_some())
        {
            listed.extend(shifts.into_iter().map(Change::ShiftKeys));
        }
        for &(_, block, live) in &moving {
            let old = *self.cells.pool.pos(block);
            bits(live).for_each(|cell| {
                self.cells.pool.set_pos(block, cell, Pos(by.moved(old[cell as usize]) as i32))
            });
        }
        let table = &mut self.cells.tables[seq.index()];
        table.gone = table.gone.moved(range, by);
        table.kill(&mut self.cells.pool, dead.clone());
        table.close_gaps(dead);
    }

    /// Return the K-shifts of a move, one for each distance in each of the blocks in `moving`.
    fn shifts(&self, moving: &[(usize, u32, u32)], by: Move) -> Vec<KeyShift> {
        let mut shifts = Vec::new();
        for &(_, block, mut live) in moving {
            let pos = self.cells.pool.pos(block);
            // Positions are never negative, so their differences fit 32 bits.
            let distance =
                |cell: u32| (by.moved(pos[cell as usize]) - i64::from(pos[cell as usize].0)) as i32;
            while live != 0 {
                let delta = distance(live.trailing_zeros());
                let same = bits(live).filter(|&cell| distance(cell) == delta);
                let cells = same.fold(0, |cells, cell| cells | 1 << cell);
                shifts.push(KeyShift { cache: 0, block, cells, delta });
                live &= !cells;
            }
        }
        shifts
    }

    /// Return a block for an entry that has no other user: the block itself, or a copy.
    fn own(&mut self, seq: SeqId, index: usize, block: u32) -> u32 {
        if self.cells.pool.refs(block) < 2 {
            return block;
        }
        let Some(own) = self.cells.pool.take(1) else { return block };
        self.cells.bytes.copy(block, own);
        if let Some(listed) = &mut self.cells.listed {
            let cells = self.cells.tables[seq.index()].extents().get(index).map_or(0, |extent| extent.live);
            listed.push(Change::CopyCells(CellCopy { cache: 0, from: block, to: own, cells }));
        }
        self.cells.pool.copy_pos(block, own);
        self.cells.pool.release(block);
        self.cells.tables[seq.index()].set_block(index, own);
        own
    }
}
