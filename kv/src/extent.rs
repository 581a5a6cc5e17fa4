//! A sequence as an ordered table of extents.
//!
//! Slot `s` of a sequence is cell `s % 32` of the block in entry `s / 32`. Cells are appended at the slot after the
//! last live one, so slots ascend with positions. Removed cells leave dead slots behind; a block without a live cell
//! goes back to the pool at once and its entry becomes [`Extent::EMPTY`].
//!
//! Attention sums in spans of eight entries that start at multiples of eight, so entries may move by whole spans
//! without changing a bit of a result. That is what `close_gaps` does: spans without a live cell leave the table. Hence
//! three invariants: every span has a live cell, the last entry has one, and the table is no longer than eight times
//! its blocks.

use crate::block::BlockPool;
use crate::error::Error;
use crate::ids::Pos;
use crate::room;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, Extent, SPAN_CELLS};
use core::ops::Range;

const CELLS: u32 = BLOCK_CELLS as u32;
/// Entries of a span.
pub(crate) const SPAN: usize = SPAN_CELLS / BLOCK_CELLS;

/// The cells of one sequence.
#[derive(Debug, Default)]
pub(crate) struct Table {
    extents: Vec<Extent>,
    n_cells: u32,
}

/// What a table was before a plan appended to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    len: usize,
    last_live: u32,
    n_cells: u32,
}

impl Mark {
    pub fn n_cells(&self) -> u32 {
        self.n_cells
    }
}

impl Table {
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of live cells.
    pub fn n_cells(&self) -> u32 {
        self.n_cells
    }

    pub fn is_empty(&self) -> bool {
        self.n_cells == 0
    }

    /// The slot that the next cell is appended at.
    pub fn n_slots(&self) -> u32 {
        self.extents.last().map_or(0, |last| {
            (self.extents.len() as u32 - 1) * CELLS + (u32::BITS - last.live.leading_zeros())
        })
    }

    /// A table of these entries, which keep the invariants, with room for `len` in all.
    pub fn of(entries: &[Extent], len: usize) -> Result<Table, Error> {
        let mut table = Table::default();
        table.make_room(len.max(entries.len()))?;
        table.extents.extend_from_slice(entries);
        table.n_cells = entries.iter().map(|extent| extent.live.count_ones()).sum();
        Ok(table)
    }

    /// Makes room for `len` entries in all.
    pub fn make_room(&mut self, len: usize) -> Result<(), Error> {
        room::for_len(&mut self.extents, len)
    }

    pub fn first_pos(&self, pool: &BlockPool) -> Option<Pos> {
        let first = self.extents.iter().find(|e| e.live != 0)?;
        Some(pool.pos(first.block)[first.live.trailing_zeros() as usize])
    }

    pub fn last_pos(&self, pool: &BlockPool) -> Option<Pos> {
        self.extents.last().and_then(|last| last_pos(last, pool))
    }

    /// The slot of the first live cell at `pos` or later; the slot after the last if there is none.
    pub fn lower_bound(&self, pool: &BlockPool, pos: Pos) -> u32 {
        let before = |extents: &[Extent]| {
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
        for (index, extent) in rest {
            let cells = pool.pos(extent.block);
            if let Some(cell) = bits(extent.live).find(|&cell| cells[cell as usize] >= pos) {
                return index as u32 * CELLS + cell;
            }
        }
        self.n_slots()
    }

    /// The slots of the live cells in a range of positions.
    pub fn slots(&self, pool: &BlockPool, range: &Range<Pos>) -> Range<u32> {
        let start = self.lower_bound(pool, range.start);
        start..self.lower_bound(pool, range.end).max(start)
    }

    /// Position of the first live cell at `slot` or later.
    pub fn pos_from(&self, pool: &BlockPool, slot: u32) -> Option<Pos> {
        let (_, block, live) = self.touched(slot..u32::MAX).next()?;
        Some(pool.pos(block)[live.trailing_zeros() as usize])
    }

    /// Position of the last live cell before `slot`.
    pub fn pos_before(&self, pool: &BlockPool, slot: u32) -> Option<Pos> {
        let touched = self.extents.get(..slot.div_ceil(CELLS) as usize).unwrap_or(&self.extents);
        touched.iter().enumerate().rev().find_map(|(index, extent)| {
            let live = extent.live & mask(index, &(0..slot));
            last_pos(&Extent { live, ..*extent }, pool)
        })
    }

    /// The entries with live cells in `slots`: index, block, and which of its live cells.
    pub fn touched(&self, slots: Range<u32>) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        let (start, end) = entries(&slots, self.extents.len());
        let touched = self.extents[start..end].iter().enumerate();
        touched.map(move |(i, e)| (start + i, e.block, e.live & mask(start + i, &slots))).filter(|t| t.2 != 0)
    }

    /// Takes the live cells in `slots` away. Dead entries stay until `close_gaps`.
    pub fn kill(&mut self, pool: &mut BlockPool, slots: Range<u32>) {
        let (start, end) = entries(&slots, self.extents.len());
        for (i, extent) in self.extents[start..end].iter_mut().enumerate() {
            let dead = extent.live & mask(start + i, &slots);
            self.n_cells -= dead.count_ones();
            extent.live &= !dead;
            if extent.live == 0 && dead != 0 {
                pool.release(extent.block);
                *extent = Extent::EMPTY;
            }
        }
    }

    /// Restores the invariants after cells in `slots` were killed.
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

    /// Gives all cells back.
    pub fn clear(&mut self, pool: &mut BlockPool) {
        for extent in self.extents.drain(..).filter(|e| e.live != 0) {
            pool.release(extent.block);
        }
        self.n_cells = 0;
    }

    /// Makes this empty table share the cells of `source` in `slots`.
    pub fn share(&mut self, pool: &mut BlockPool, source: &Table, slots: Range<u32>) {
        debug_assert!(self.extents.is_empty());
        let (start, end) = entries(&slots, source.extents.len());
        let first = start / SPAN * SPAN;
        for (index, extent) in source.extents.iter().enumerate().take(end).skip(first) {
            let live = extent.live & mask(index, &slots);
            if live != 0 {
                pool.retain(extent.block);
            }
            self.n_cells += live.count_ones();
            self.extents.push(if live == 0 { Extent::EMPTY } else { Extent { live, ..*extent } });
        }
        // The range may end in slots that are dead.
        self.trim();
    }

    /// Drops dead entries at the end.
    fn trim(&mut self) {
        while self.extents.last().is_some_and(|last| last.live == 0) {
            self.extents.pop();
        }
    }

    /// The entry that the next cell goes to, if it has room: its index and block.
    pub fn open_tail(&self) -> Option<(usize, u32)> {
        let last = self.extents.last().filter(|last| last.live >> (CELLS - 1) == 0)?;
        Some((self.extents.len() - 1, last.block))
    }

    /// Makes room for one more entry.
    pub fn make_room_for_one(&mut self) -> Result<(), Error> {
        room::for_one(&mut self.extents)
    }

    /// Adds an entry without live cells; cells are pushed to it at once.
    pub fn open(&mut self, block: u32) {
        self.extents.push(Extent { block, live: 0 });
    }

    /// Appends a cell to the last entry, which has room; returns its slot.
    pub fn push_cell(&mut self) -> u32 {
        let slot = self.n_slots();
        if let Some(last) = self.extents.last_mut() {
            last.live |= 1 << (slot % CELLS);
            self.n_cells += 1;
        }
        slot
    }

    pub fn set_block(&mut self, index: usize, block: u32) {
        if let Some(extent) = self.extents.get_mut(index) {
            extent.block = block;
        }
    }

    pub fn mark(&self) -> Mark {
        let last_live = self.extents.last().map_or(0, |last| last.live);
        Mark { len: self.extents.len(), last_live, n_cells: self.n_cells }
    }

    /// Takes back what was appended since `mark`; new blocks go back to the pool.
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

#[cfg(any(test, feature = "oracle"))]
impl Table {
    /// Checks the invariants.
    pub fn audit(&self, pool: &BlockPool) -> Result<(), alloc::string::String> {
        let dead = |extents: &[Extent]| extents.iter().all(|e| e.live == 0);
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

/// The set bits of `live`, ascending.
pub(crate) fn bits(live: u32) -> impl Iterator<Item = u32> {
    (0..CELLS).filter(move |bit| live >> bit & 1 == 1)
}

fn last_pos(extent: &Extent, pool: &BlockPool) -> Option<Pos> {
    let last = extent.live.checked_ilog2()?;
    Some(pool.pos(extent.block)[last as usize])
}

/// Which cells of entry `index` are in `slots`.
fn mask(index: usize, slots: &Range<u32>) -> u32 {
    let first = index as u32 * CELLS;
    let below = |slot: u32| match slot.saturating_sub(first) {
        n if n >= CELLS => u32::MAX,
        n => (1 << n) - 1,
    };
    below(slots.end) & !below(slots.start)
}

/// The entries that `slots` touch, clipped to a table of `len`.
fn entries(slots: &Range<u32>, len: usize) -> (usize, usize) {
    let end = (slots.end.div_ceil(CELLS) as usize).min(len);
    (((slots.start / CELLS) as usize).min(end), end)
}
