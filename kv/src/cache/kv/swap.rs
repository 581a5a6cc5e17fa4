//! Copies of shared blocks that a plan makes (copy on write).

use crate::external::CellCopy;
use crate::ids::SeqId;

/// Shared block that a plan exchanges for a copy, in the table of one sequence.
pub(in crate::cache) struct Swap {
    /// Ubatch before which the copy is made.
    pub ubatch: u32,
    /// Sequence of the table.
    pub seq: SeqId,
    /// Index of the table's entry.
    pub index: usize,
    /// Shared block.
    pub from: u32,
    /// Copy.
    pub to: u32,
    /// Live cells of the entry before the plan, which undoing restores.
    pub live: u32,
    /// True if `from` has no other user left. The commit releases it, and not before.
    pub held: bool,
    /// True if the table has the copy.
    pub done: bool,
}

/// Return the copies that swaps take, in order, each with its ubatch.
pub(in crate::cache) fn copies(swaps: &[Swap]) -> impl Iterator<Item = (u32, CellCopy)> + '_ {
    // Sequences that move together share a copy.
    let is_new = |(i, swap): &(usize, &Swap)| *i == 0 || swaps[i - 1].to != swap.to;
    let copy = |swap: &Swap| CellCopy { cache: 0, from: swap.from, to: swap.to, cells: swap.live };
    swaps.iter().enumerate().filter(is_new).map(move |(_, swap)| (swap.ubatch, copy(swap)))
}
