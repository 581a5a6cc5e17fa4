//! The slots that a token sees.
//!
//! Attention asks for them by a function of the token's number, so that a batch of several
//! sequences needs no tables of its own.

use crate::cell::{BLOCK_CELLS, BlockEntry, SPAN_CELLS};
use core::ops::Range;

/// The slots that a token sees: some slots of one sequence.
///
/// Causal attention is `0..slot + 1`, a sliding window begins later, an encoder sees all slots.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The sequence's block table, indexed by `slot / 32`.
    pub table: &'a [BlockEntry],
    /// The slots that are seen where they are live. Slots beyond the table are not seen.
    pub slots: Range<u32>,
}

impl Seen<'_> {
    /// Return the slots inside the table.
    pub(super) fn slots(&self) -> Range<usize> {
        let end = (self.slots.end as usize).min(self.table.len().saturating_mul(BLOCK_CELLS));
        (self.slots.start as usize).min(end)..end
    }

    /// Return the spans that hold these slots.
    pub(super) fn spans(&self) -> Range<usize> {
        let slots = self.slots();
        if slots.is_empty() { 0..0 } else { slots.start / SPAN_CELLS..slots.end.div_ceil(SPAN_CELLS) }
    }
}
