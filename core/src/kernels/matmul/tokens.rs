//! Tokens in tiles of one height, over the groups that their blocks lie in.

use crate::quantized::{GROUP, QBlock};

/// `N` tokens of one group.
pub(super) struct Tile<'a, const N: usize> {
    /// From the first block of the first of them on.
    pub x: &'a [QBlock],
    /// Blocks from a token's block to its next.
    pub stride: usize,
    /// The first of them.
    pub first: usize,
    /// How many of them the tile before has had.
    pub n_old: usize,
}

impl<'a, const N: usize> Tile<'a, N> {
    /// The tokens from `N * i` on; at the end, the last `N`. Each group has that many, and all but the last a multiple of it.
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
