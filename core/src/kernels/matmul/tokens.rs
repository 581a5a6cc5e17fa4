//! Tokens in tiles of one height, over the groups that their blocks lie in.
//!
//! Instructions that take four or sixteen tokens at once cannot take fewer. The last tile of a
//! group therefore begins early enough to be full, computes some tokens a second time, and knows
//! how many.

use crate::block::activations::{GROUP, QBlock};

/// `N` tokens of one group.
pub(super) struct Tile<'a, const N: usize> {
    /// The blocks, from the first block of the first token on.
    pub x: &'a [QBlock],
    /// Blocks from a token's block to its next.
    pub stride: usize,
    /// The number of the first token.
    pub first: usize,
    /// Tokens at the start of this tile that the tile before has had.
    pub n_old: usize,
}

impl<'a, const N: usize> Tile<'a, N> {
    /// Return the tokens from `N * i` on; at the end of a group, its last `N`.
    ///
    /// Each group has that many, and all but the last a multiple of it.
    #[inline(always)]
    pub fn new(x: &'a [QBlock], n_blocks: usize, i: usize) -> Self {
        const { assert!(GROUP.is_multiple_of(N)) }
        let (group, i) = (i / (GROUP / N), i % (GROUP / N));
        let x = &x[group * GROUP * n_blocks..];
        let stride = (x.len() / n_blocks).min(GROUP);
        let start = (i * N).min(stride - N);
        Self { x: &x[start..], stride, first: group * GROUP + start, n_old: i * N - start }
    }
}
