//! Scores that depend on how far a cell lies from the query.

use crate::cell::{BLOCK_CELLS, Extent};
use crate::kernels::attention::{Masks, Scores};
use core::fmt;

/// A term for each distance between a query and a cell, added to the scaled score: it becomes `score * scale + term`, with two
/// roundings.
#[derive(Clone, Copy)]
pub struct Relative<'a> {
    /// `[n_head, 2 * reach + 1]`: entry `reach + d` of a head is the term of cells at the query's position plus d. Cells that lie
    /// farther away have the term of the ends.
    pub terms: &'a [f32],
    /// The farthest distance with a term of its own.
    pub reach: usize,
    /// The position of token i of the batch.
    pub q_pos: &'a (dyn Fn(usize) -> i32 + Sync),
    /// The positions of a block's cells; those of cells that nobody sees do not matter.
    pub k_pos: &'a (dyn Fn(u32) -> [i32; BLOCK_CELLS] + Sync),
}

impl fmt::Debug for Relative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relative").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl Relative<'_> {
    /// Terms of one head.
    pub(super) fn n_terms(&self) -> usize {
        self.reach.saturating_mul(2).saturating_add(1)
    }

    /// Scales the scores of some rows over a span whose blocks are `extents`, and adds their terms. `row` tells head and token of
    /// each row. Plain arithmetic on single numbers, so that all sets of kernels agree.
    pub(super) fn shape(
        &self,
        scores: &mut [Scores],
        masks: &[Masks],
        scale: f32,
        extents: &[Extent],
        row: impl Fn(usize) -> (usize, usize),
    ) {
        let (n_terms, reach) = (self.n_terms(), self.reach as i64);
        for (i, extent) in extents.iter().enumerate() {
            if masks.iter().all(|masks| masks.get(i).is_none_or(|&mask| mask == 0)) {
                continue;
            }
            let cells = (self.k_pos)(extent.block);
            for (r, scores) in scores.iter_mut().enumerate() {
                let (head, token) = row(r);
                let q_pos = i64::from((self.q_pos)(token));
                let terms = self.terms.chunks_exact(n_terms).nth(head).unwrap_or(&[]);
                let block = scores.as_chunks_mut::<BLOCK_CELLS>().0.get_mut(i);
                for (score, &pos) in block.into_iter().flatten().zip(&cells) {
                    let distance = (i64::from(pos) - q_pos).clamp(-reach, reach);
                    let term = terms.get((distance + reach) as usize).copied().unwrap_or(0.0);
                    *score = *score * scale + term;
                }
            }
        }
    }
}
