//! Relative position bias: a number for each distance between a query and a cell.

use crate::cell::{BLOCK_CELLS, BlockEntry};
use crate::kernels::attention::{Masks, Scores};
use core::fmt;

/// Relative position bias, as T5 and its kin learn it: a score becomes `score * scale + bias`, with
/// two roundings, where the bias depends on head and distance alone.
///
/// Positions come from the caller, because slots are no positions: a cell's slot is its place in
/// the order of appending, and its position may have been shifted.
#[derive(Clone, Copy)]
pub struct PositionBias<'a> {
    /// `[n_head, 2 * max_distance + 1]`: entry `max_distance + d` of a head is the bias of cells at
    /// the query's position plus d. Cells that lie farther away have the bias of the ends.
    pub bias: &'a [f32],
    /// The greatest distance with a bias of its own.
    pub max_distance: usize,
    /// The position of token i of the batch.
    pub q_pos: &'a (dyn Fn(usize) -> i32 + Sync),
    /// The positions of a block's cells; those of cells that nobody sees do not matter.
    pub k_pos: &'a (dyn Fn(u32) -> [i32; BLOCK_CELLS] + Sync),
}

impl fmt::Debug for PositionBias<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionBias").field("max_distance", &self.max_distance).finish_non_exhaustive()
    }
}

impl PositionBias<'_> {
    /// Return the number of biases of one head.
    pub(super) fn n_distances(&self) -> usize {
        self.max_distance.saturating_mul(2).saturating_add(1)
    }

    /// Scale the scores of some rows over a span whose blocks are `entries`, and add their biases.
    ///
    /// `row` returns head and token of a row. Plain arithmetic on single numbers, so all kernel
    /// sets agree. [`Attention::run`](super::Attention::run) has checked the length of
    /// [`Self::bias`].
    pub(super) fn apply(
        &self,
        scores: &mut [Scores],
        masks: &[Masks],
        scale: f32,
        entries: &[BlockEntry],
        row: impl Fn(usize) -> (usize, usize),
    ) {
        let (n_distances, max_distance) = (self.n_distances(), self.max_distance as i64);
        for (i, entry) in entries.iter().enumerate() {
            if masks.iter().all(|masks| masks.get(i).is_none_or(|&mask| mask == 0)) {
                continue;
            }
            let cells = (self.k_pos)(entry.block);
            for (r, scores) in scores.iter_mut().enumerate() {
                let (head, token) = row(r);
                let q_pos = i64::from((self.q_pos)(token));
                let bias = &self.bias[head * n_distances..][..n_distances];
                let block = scores.as_chunks_mut::<BLOCK_CELLS>().0.get_mut(i);
                for (score, &pos) in block.into_iter().flatten().zip(&cells) {
                    let distance = (i64::from(pos) - q_pos).clamp(-max_distance, max_distance);
                    *score = *score * scale + bias[(distance + max_distance) as usize];
                }
            }
        }
    }
}
