//! One tile: query rows that share a key head and a sequence.
//!
//! Rows of a tile are neighbours in `[n_tokens, group]`: the query heads of a group for one token,
//! then those of the next token. They share the keys and values of one key head, and differ in the
//! slots they see; a mask a block tells the kernels which.

use crate::cell::{BLOCK_CELLS, BlockEntry, SPAN_CELLS};
use crate::kernels::attention::{MAX_ROWS, Masks, SPAN_BLOCKS};
use core::ops::Range;

/// The places of the results of a group of heads: row i of `[n_tokens, group]` lies in a matrix of
/// wider rows.
pub(super) struct Rows<'a> {
    pub(super) data: &'a mut [f32],
    /// Floats of one head's row.
    pub(super) width: usize,
    /// Rows from one token to the next.
    pub(super) stride: usize,
    /// The row of the first token's first head.
    pub(super) first: usize,
    pub(super) group: usize,
}

impl Rows<'_> {
    /// Return the rows of some tiles, in ascending order.
    pub(super) fn tiles<const TILES: usize>(
        &mut self,
        rows: impl Fn(usize) -> Range<usize>,
    ) -> [[&mut [f32]; MAX_ROWS]; TILES] {
        let (stride, first, group) = (self.stride, self.first, self.group);
        let mut chunks = self.data.chunks_exact_mut(self.width.max(1));
        let mut next = 0;
        core::array::from_fn(|t| {
            let mut places = rows(t).map(|i| i / group * stride + first + i % group);
            core::array::from_fn(|_| {
                let Some(place) = places.next() else { return Default::default() };
                let row = chunks.nth(place - next);
                next = place + 1;
                debug_assert!(row.is_some(), "every row of a tile has a place for its results");
                row.unwrap_or_default()
            })
        })
    }
}

/// Some rows of one key head and one sequence.
pub(super) struct Tile {
    /// The first of them, in `[n_tokens, group]` of the job.
    pub(super) first_row: usize,
    pub(super) n_rows: usize,
    /// The rows that the kernels compute, at least `n_rows`: a height that they are compiled for.
    pub(super) height: usize,
    /// The slots that each row sees.
    pub(super) slots: [Range<usize>; MAX_ROWS],
}

impl Tile {
    pub(super) fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.n_rows
    }

    /// Return the row that row r of the kernels stands for: missing ones repeat the last.
    pub(super) fn row(&self, r: usize) -> usize {
        self.first_row + r.min(self.n_rows.saturating_sub(1))
    }

    /// Write the live cells of a span that each row sees to `masks`; rows that are missing repeat
    /// the last.
    pub(super) fn masks(&self, span: usize, live: &Masks, masks: &mut [Masks]) {
        for (r, masks) in masks.iter_mut().enumerate() {
            let slots = &self.slots[r.min(self.n_rows.saturating_sub(1))];
            *masks = *live;
            if slots.start <= span * SPAN_CELLS && (span + 1) * SPAN_CELLS <= slots.end {
                continue;
            }
            for (i, mask) in masks.iter_mut().enumerate() {
                let block = (span * SPAN_BLOCKS + i) * BLOCK_CELLS;
                let inside = |slot: usize| slot.saturating_sub(block).min(BLOCK_CELLS);
                *mask &= ((1u64 << inside(slots.end)) - (1u64 << inside(slots.start))) as u32;
            }
        }
    }

    /// Return the spans of which some row may see something.
    pub(super) fn spans(&self) -> Range<usize> {
        let rows = self.slots[..self.n_rows].iter().filter(|slots| !slots.is_empty());
        let spans = rows.map(|slots| slots.start / SPAN_CELLS..slots.end.div_ceil(SPAN_CELLS));
        spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }
}

/// Return the live cells of a span; none behind the end of the table.
pub(super) fn live(table: &[BlockEntry], span: usize) -> Masks {
    core::array::from_fn(|i| table.get(span * SPAN_BLOCKS + i).map_or(0, |entry| entry.live))
}
