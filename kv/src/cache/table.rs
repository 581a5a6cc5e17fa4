//! Block tables: the cells of one sequence, in order.
//!
//! Slot `s` of a sequence is cell `s % 32` of the block in entry `s / 32`. Cells are appended at
//! the slot after the last live one, so slots ascend with positions. Removed cells leave dead slots
//! behind. A block without a live cell of the table is released at once, and its entry becomes
//! [`BlockEntry::EMPTY`].
//!
//! Attention sums in spans of eight entries that start at multiples of eight. Entries may therefore
//! move by whole spans without changing a bit of a result, and `close_gaps` removes spans without a
//! live cell from the table. Three invariants follow:
//!
//! - Every span has a live cell.
//! - The last entry has a live cell.
//! - The table has at most eight times as many entries as blocks.

use crate::cache::block::BlockPool;
use crate::cache::operation::Move;
use crate::error::Error;
use crate::ids::Pos;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, SPAN_CELLS};
use core::ops::Range;
use core::{iter, slice};

/// Cells of a block.
const CELLS: u32 = BLOCK_CELLS as u32;
/// Entries of a span.
pub(crate) const SPAN: usize = SPAN_CELLS / BLOCK_CELLS;

/// Block table of one sequence or checkpoint.
///
/// Each entry names a block and the cells of it that are live, that is, belong to this table. The
/// pool counts the table as one user of each block with a live cell. A table does not know the
/// pool, so each method that changes users takes it.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    /// Entries, with the live cells of each block.
    extents: Vec<BlockEntry>,
    /// Number of live cells.
    n_cells: u32,
    /// Cells that a window released; none of an empty table.
    pub gone: Gone,
}

/// Cells of a sequence or of a checkpoint that are missing because they were released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Position below which cells may be missing; 0 if none are.
    pub whole_from: Pos,
    /// First position that the sequence had before cells were released.
    pub start: Pos,
}

impl Gone {
    /// Return what is missing after a move of the positions in `range`.
    pub fn moved(self, range: &Range<Pos>, by: Move) -> Gone {
        let mut whole_from = self.whole_from;
        let last_gone = Pos(whole_from.0 - 1);
        if range.contains(&last_gone) {
            // The cells before the range do not move.
            let after_moved = (by.moved(last_gone) + 1).clamp(0, i64::from(Pos::MAX.0)) as i32;
            whole_from = Pos(after_moved).max(range.start.min(whole_from));
        }
        Gone { whole_from, start: Pos::ZERO }
    }

    /// Return what is missing after the removal of a range, whose tokens are missed no more.
    pub fn without(self, range: &Range<Pos>) -> Gone {
        match range.contains(&self.start) {
            true if range.end >= self.whole_from => Gone::default(),
            true => Gone { start: range.end, ..self },
            false => self,
        }
    }
}

/// End of a table before a plan appended to it, to which `back_to` returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Number of entries.
    len: usize,
    /// Live cells of the last entry.
    last_live: u32,
    /// Number of live cells.
    pub n_cells: u32,
}

impl BlockTable {
    /// Return the entries.
    pub fn extents(&self) -> &[BlockEntry] {
        &self.extents
    }

    /// Return the number of live cells.
    pub fn n_cells(&self) -> u32 {
        self.n_cells
    }

    /// Return true if there is no live cell.
    pub fn is_empty(&self) -> bool {
        self.n_cells == 0
    }

    /// Return the slot at which the next cell is appended.
    pub fn n_slots(&self) -> u32 {
        self.extents.last().map_or(0, |last| {
            (self.extents.len() as u32 - 1) * CELLS + (u32::BITS - last.live.leading_zeros())
        })
    }

    /// Return a table of these entries, with room for `len` in total. The entries must satisfy the
    /// invariants.
    pub fn of(entries: &[BlockEntry], len: usize) -> Result<BlockTable, Error> {
        let mut table = BlockTable::default();
        table.make_room(len.max(entries.len()))?;
        table.extents.extend_from_slice(entries);
        table.n_cells = entries.iter().map(|extent| extent.live.count_ones()).sum();
        Ok(table)
    }

    /// Reserve room for `len` entries in total.
    pub fn make_room(&mut self, len: usize) -> Result<(), Error> {
        reserve::for_len(&mut self.extents, len)
    }

    /// Return the position of the last live cell.
    pub fn last_pos(&self, pool: &BlockPool) -> Option<Pos> {
        self.extents.last().and_then(|last| last_pos(last, pool))
    }

    /// Return the slot of the first live cell at `pos` or later, or the slot after the last cell if
    /// there is none.
    ///
    /// The search halves the spans first, since each has a live cell, and then scans the entries of
    /// one span and the cells of one entry.
    pub fn lower_bound(&self, pool: &BlockPool, pos: Pos) -> u32 {
        let before = |extents: &[BlockEntry]| {
            let last = extents.iter().rev().find_map(|e| last_pos(e, pool));
            last.is_none_or(|last| last < pos)
        };
        let (mut low, mut high) = (0, self.extents.len().div_ceil(SPAN));
        while low < high {
            let middle = low.midpoint(high);
            let end = ((middle + 1) * SPAN).min(self.extents.len());
            if before(&self.extents[middle * SPAN..end]) { low = middle + 1 } else { high = middle }
        }
        let rest = self.extents.iter().enumerate().skip(low * SPAN);
        for (index, extent) in rest.filter(|(_, extent)| !before(slice::from_ref(extent))) {
            let cells = pool.pos(extent.block);
            if let Some(cell) = bits(extent.live).find(|&cell| cells[cell as usize] >= pos) {
                return index as u32 * CELLS + cell;
            }
        }
        self.n_slots()
    }

    /// Return the range of slots that holds the live cells in a range of positions.
    pub fn slots(&self, pool: &BlockPool, range: &Range<Pos>) -> Range<u32> {
        let start = self.lower_bound(pool, range.start);
        start..self.lower_bound(pool, range.end).max(start)
    }

    /// Return the position of the first live cell at `slot` or later.
    pub fn pos_from(&self, pool: &BlockPool, slot: u32) -> Option<Pos> {
        let (_, block, live) = self.touched(slot..u32::MAX).next()?;
        Some(pool.pos(block)[live.trailing_zeros() as usize])
    }

    /// Return the position of the last live cell before `slot`.
    pub fn pos_before(&self, pool: &BlockPool, slot: u32) -> Option<Pos> {
        let touched = self.extents.get(..slot.div_ceil(CELLS) as usize).unwrap_or(&self.extents);
        touched.iter().enumerate().rev().find_map(|(index, extent)| {
            let live = extent.live & mask(index, &(0..slot));
            last_pos(&BlockEntry { live, ..*extent }, pool)
        })
    }

    /// Return the entries with live cells in `slots`: index, block, and the live cells in `slots`
    /// as bits.
    pub fn touched(&self, slots: Range<u32>) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        let (start, end) = entries(&slots, self.extents.len());
        let touched = self.extents[start..end].iter().enumerate();
        touched.map(move |(i, e)| (start + i, e.block, e.live & mask(start + i, &slots))).filter(|t| t.2 != 0)
    }

    /// Remove the live cells in `slots` and release the blocks that have none left. Empty entries
    /// stay until `close_gaps`.
    pub fn kill(&mut self, pool: &mut BlockPool, slots: Range<u32>) {
        let (start, end) = entries(&slots, self.extents.len());
        for (i, extent) in self.extents[start..end].iter_mut().enumerate() {
            let dead = extent.live & mask(start + i, &slots);
            self.n_cells -= dead.count_ones();
            extent.live &= !dead;
            if extent.live == 0 && dead != 0 {
                pool.release(extent.block);
                *extent = BlockEntry::EMPTY;
            }
        }
    }

    /// Restore the invariants after cells in `slots` were removed.
    pub fn close_gaps(&mut self, slots: Range<u32>) {
        self.trim();
        let dead = |span: &usize| {
            let entries = self.extents.get(span * SPAN..(span + 1) * SPAN);
            entries.is_some_and(|entries| entries.iter().all(|e| e.live == 0))
        };
        let mut spans = slots.start as usize / SPAN_CELLS..(slots.end as usize).div_ceil(SPAN_CELLS);
        if let Some(first) = spans.find(dead) {
            let n = 1 + spans.take_while(dead).count();
            self.extents.drain(first * SPAN..(first + n) * SPAN);
        }
    }

    /// Remove all cells.
    pub fn clear(&mut self, pool: &mut BlockPool) {
        for extent in self.extents.drain(..).filter(|e| e.live != 0) {
            pool.release(extent.block);
        }
        self.n_cells = 0;
        self.gone = Gone::default();
    }

    /// Make this empty table share the cells of `source` in `slots`, and lack what `source` lacks.
    pub fn share(&mut self, pool: &mut BlockPool, source: &BlockTable, slots: Range<u32>) {
        debug_assert!(self.extents.is_empty());
        let (start, end) = entries(&slots, source.extents.len());
        let first = start / SPAN * SPAN;
        for (index, extent) in source.extents.iter().enumerate().take(end).skip(first) {
            let live = extent.live & mask(index, &slots);
            if live != 0 {
                pool.retain(extent.block);
            }
            self.n_cells += live.count_ones();
            self.extents.push(if live == 0 { BlockEntry::EMPTY } else { BlockEntry { live, ..*extent } });
        }
        self.gone = source.gone;
        // The range may end in dead slots.
        self.trim();
    }

    /// Remove empty entries at the end.
    fn trim(&mut self) {
        while self.extents.last().is_some_and(|last| last.live == 0) {
            self.extents.pop();
        }
        if self.extents.is_empty() {
            self.gone = Gone::default();
        }
    }

    /// Return the index and block of the entry to which the next cell goes, if its block has a free
    /// cell at the end.
    pub fn open_tail(&self) -> Option<(usize, u32)> {
        let last = self.extents.last().filter(|last| last.live >> (CELLS - 1) == 0)?;
        Some((self.extents.len() - 1, last.block))
    }

    /// Reserve room for one more entry.
    pub fn make_room_for_one(&mut self) -> Result<(), Error> {
        reserve::for_more(&mut self.extents, 1)
    }

    /// Append an entry without live cells; the caller pushes a cell to it at once.
    pub fn open(&mut self, block: u32) {
        self.extents.push(BlockEntry { block, live: 0 });
    }

    /// Append a cell to the last entry, which must have room, and return its slot.
    pub fn push_cell(&mut self) -> u32 {
        let slot = self.n_slots();
        if let Some(last) = self.extents.last_mut() {
            last.live |= 1 << (slot % CELLS);
            self.n_cells += 1;
        }
        slot
    }

    /// Replace the block of an entry, for a copy of it. The caller counts the users.
    pub fn set_block(&mut self, index: usize, block: u32) {
        if let Some(extent) = self.extents.get_mut(index) {
            extent.block = block;
        }
    }

    /// Return the end of the table, for `back_to`.
    pub fn mark(&self) -> Mark {
        let last_live = self.extents.last().map_or(0, |last| last.live);
        Mark { len: self.extents.len(), last_live, n_cells: self.n_cells }
    }

    /// Remove what was appended since `mark`; new blocks go back to the pool.
    pub fn back_to(&mut self, pool: &mut BlockPool, mark: Mark) {
        for extent in self.extents.drain(mark.len.min(self.extents.len())..) {
            pool.release(extent.block);
        }
        if let Some(last) = self.extents.last_mut() {
            last.live = mark.last_live;
        }
        self.n_cells = mark.n_cells;
    }
}

#[cfg(any(test, feature = "testing"))]
impl BlockTable {
    /// Check the invariants.
    pub fn audit(&self, pool: &BlockPool) -> Result<(), alloc::string::String> {
        let dead = |extents: &[BlockEntry]| extents.iter().all(|e| e.live == 0);
        let wrong = if self.extents.last().is_some_and(|last| last.live == 0) {
            "the last entry is dead"
        } else if self.extents.chunks(SPAN).any(dead) {
            "a span is dead"
        } else if self.extents.iter().map(|e| e.live.count_ones()).sum::<u32>() != self.n_cells {
            "cells are counted wrong"
        } else if !self
            .touched(0..u32::MAX)
            .flat_map(|t| bits(t.2).map(move |c| pool.pos(t.1)[c as usize]))
            .is_sorted()
        {
            "positions do not ascend"
        } else {
            return Ok(());
        };
        Err(alloc::format!("{wrong}: {self:?}"))
    }
}

/// Return the indices of the set bits of `live`, ascending.
pub(crate) fn bits(live: u32) -> impl Iterator<Item = u32> {
    let rest = iter::successors(Some(live), |left| Some(left & left.wrapping_sub(1)));
    rest.take_while(|left| *left != 0).map(u32::trailing_zeros)
}

/// Return the position of the last live cell of an entry.
fn last_pos(extent: &BlockEntry, pool: &BlockPool) -> Option<Pos> {
    let last = extent.live.checked_ilog2()?;
    Some(pool.pos(extent.block)[last as usize])
}

/// Return the cells of entry `index` that are in `slots`, as bits.
fn mask(index: usize, slots: &Range<u32>) -> u32 {
    let first = index as u32 * CELLS;
    let below = |slot: u32| match slot.saturating_sub(first) {
        n if n >= CELLS => u32::MAX,
        n => (1 << n) - 1,
    };
    below(slots.end) & !below(slots.start)
}

/// Return the range of entries that `slots` touch, clipped to a table of `len` entries.
fn entries(slots: &Range<u32>, len: usize) -> (usize, usize) {
    let end = (slots.end.div_ceil(CELLS) as usize).min(len);
    (((slots.start / CELLS) as usize).min(end), end)
}

/// Make `n` empty tables with room for `room` entries each.
pub(super) fn tables(n: u32, room: usize) -> Result<Vec<BlockTable>, Error> {
    (0..n).map(|_| BlockTable::of(&[], room)).collect()
}
