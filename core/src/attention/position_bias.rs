//! Relative position bias: a number for each distance between a query and a cell.

use crate::cell::{BLOCK_CELLS, BlockEntry};
use crate::error::{Error, length};
use crate::kernels::attention::{Masks, Scores};
use core::fmt;

/// Relative position bias: a score becomes `score * scale + bias`, with two roundings, where the
/// bias depends on head and distance alone.
///
/// Positions come from the caller, because slots are no positions: a cell's slot is its place in
/// the order of appending, and its position may have been shifted.
#[derive(Clone, Copy)]
pub struct PositionBias<'a> {
    /// The bias of each distance.
    pub rule: BiasRule<'a>,
    /// The position of token i of the batch.
    pub q_pos: &'a (dyn Fn(usize) -> i32 + Sync),
    /// The positions of a block's cells; those of cells that nobody sees do not matter.
    pub k_pos: &'a (dyn Fn(u32) -> [i32; BLOCK_CELLS] + Sync),
}

impl fmt::Debug for PositionBias<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionBias").field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// The bias of a distance.
#[derive(Clone, Copy, Debug)]
pub enum BiasRule<'a> {
    /// A bias for every head and distance, as T5 and its kin learn it.
    Table {
        /// `[n_head, 2 * max_distance + 1]`: entry `max_distance + d` of a head is the bias of
        /// cells at the query's position plus d. Cells that lie farther away have the bias of the
        /// ends.
        bias: &'a [f32],
        /// The greatest distance with a bias of its own.
        max_distance: usize,
    },
    /// The distance times a slope of each head, below 0: ALiBi (Press et al., 2021, arXiv
    /// 2108.12409). With n the largest power of two up to the number of heads, head h < n has the
    /// slope `2^(-max_bias * (h + 1) / n)`, and later ones, between them, `2^(-max_bias * (h - n +
    /// 0.5) / n)`.
    Slopes {
        /// The exponent of the last slope, usually 8.
        max_bias: f32,
    },
}

impl BiasRule<'_> {
    /// Check that a table has a bias for every distance of `n_head` heads.
    pub(super) fn check(&self, n_head: usize) -> Result<(), Error> {
        let BiasRule::Table { bias, max_distance } = self else { return Ok(()) };
        let n_distances = max_distance.saturating_mul(2).saturating_add(1);
        length("relative position bias", bias.len(), n_head.saturating_mul(n_distances))
    }
}

/// Return the slope of a head; see [`BiasRule::Slopes`].
fn slope(max_bias: f32, head: usize, n_head: usize) -> f32 {
    let n = 1 << n_head.max(1).ilog2();
    match head < n {
        true => libm::powf(libm::exp2f(-max_bias / n as f32), (head + 1) as f32),
        false => libm::powf(libm::exp2f(-max_bias / 2.0 / n as f32), (2 * (head - n) + 1) as f32),
    }
}

impl PositionBias<'_> {
    /// Scale the scores of some rows over a span whose blocks are `entries`, and add their biases.
    ///
    /// `row` returns head and token of a row. Plain arithmetic on single numbers, so all kernel
    /// sets agree. [`Attention::run`](super::Attention::run) has checked the rule.
    pub(super) fn apply(
        &self,
        scores: &mut [Scores],
        masks: &[Masks],
        scale: f32,
        entries: &[BlockEntry],
        n_head: usize,
        row: impl Fn(usize) -> (usize, usize),
    ) {
        match self.rule {
            BiasRule::Table { bias, max_distance } => {
                let (n_distances, max_distance) = (2 * max_distance + 1, max_distance as i64);
                self.each_row(scores, masks, entries, row, |head| {
                    let bias = &bias[head * n_distances..][..n_distances];
                    move |score, distance: i64| {
                        let distance = distance.clamp(-max_distance, max_distance);
                        score * scale + bias[(distance + max_distance) as usize]
                    }
                });
            }
            BiasRule::Slopes { max_bias } => self.each_row(scores, masks, entries, row, |head| {
                let slope = slope(max_bias, head, n_head);
                move |score, distance: i64| score * scale - slope * distance.unsigned_abs() as f32
            }),
        }
    }

    /// Replace each score by what the function of its head makes of it and of the distance from the
    /// query to the cell.
    fn each_row<F: Fn(f32, i64) -> f32>(
        &self,
        scores: &mut [Scores],
        masks: &[Masks],
        entries: &[BlockEntry],
        row: impl Fn(usize) -> (usize, usize),
        biased: impl Fn(usize) -> F,
    ) {
        for (r, scores) in scores.iter_mut().enumerate() {
            let (head, token) = row(r);
            let (biased, q_pos) = (biased(head), i64::from((self.q_pos)(token)));
            let blocks = scores.as_chunks_mut::<BLOCK_CELLS>().0.iter_mut().zip(entries).enumerate();
            for (i, (block, entry)) in blocks {
                if masks.iter().all(|masks| masks.get(i).is_none_or(|&mask| mask == 0)) {
                    continue;
                }
                for (score, &pos) in block.iter_mut().zip(&(self.k_pos)(entry.block)) {
                    *score = biased(*score, i64::from(pos) - q_pos);
                }
            }
        }
    }
}
