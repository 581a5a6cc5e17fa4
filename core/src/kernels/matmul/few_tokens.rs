//! Quantised weights times a few tokens: panels are read once and never unpacked to memory.
//!
//! A tile is one panel times up to twelve tokens, with all accumulators in registers; the panel
//! streams past from memory. More tokens pass in groups of tiles, or go to [`super::unpacked`].
//!
//! Branches on the format alone are `if const`: the compiler generates one arm only, and these
//! kernels are most of its work.

use super::sink::{Sink, Write};
use super::sums::{has_few_bits, minima, panels, scale_sums, start};
use crate::block::activations::{GROUP, QBlock};
use crate::format::layout;
use crate::format::planes::Line;
use crate::format::{Bias, Factors, Format};
use crate::isa::Simd;
use crate::isa::stream::Fetch;
use crate::pool::Band;
use bytemuck::Pod;

/// Add the products of four columns.
#[inline(always)]
fn dot<S: Simd, Q: Format>(s: S, acc: S::I, w: S::B, x: i32) -> S::I {
    if const { matches!(Q::BIAS, Bias::Signed) } { s.dot_biased(acc, w, x) } else { s.dot_small(acc, w, x) }
}

/// Return the sum of a block of one token, or of half a block: `N` vectors of weights, from the
/// first of `x.q[from..]`.
#[inline(always)]
fn few_bits<S: Simd, Q: Format, const N: usize>(
    s: S,
    w: &[S::B; N],
    x: &QBlock,
    from: usize,
    correction: i32,
) -> S::I {
    let zero = s.isplat(0);
    let Some(q) = x.q.get(from..).and_then(|q| q.first_chunk()) else { return zero };
    let sum = if const { Q::BITS <= 4 } {
        s.dot_few_bits::<N, 4>(zero, w, q)
    } else if const { Q::BITS == 5 } {
        s.dot_few_bits::<N, 5>(zero, w, q)
    } else if const { Q::BITS == 6 } {
        s.dot_few_bits::<N, 6>(zero, w, q)
    } else {
        s.dot_few_bits::<N, 7>(zero, w, q)
    };
    s.iadd(s.ishl(sum, Q::SHIFT), start::<S, Q>(s, x, correction))
}

/// Lines far ahead of a block's elements, to be fetched while it is multiplied.
///
/// A few lines between products, because a burst of them takes all places in which loads wait for
/// memory. Sets that sum products of few bits at once have no place between them.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    lines: &'a [Line],
    fetch: Fetch,
}

impl<'a> Ahead<'a> {
    /// Nothing is fetched.
    const NOTHING: Self = Self { lines: &[], fetch: Fetch::Nothing };

    /// Return what belongs to the elements `quants`.
    #[inline(always)]
    fn of<T: Pod>(quants: &'a T, fetch: Fetch) -> Self {
        Self { lines: bytemuck::bytes_of(quants).as_chunks().0, fetch }
    }

    /// Fetch quarter `g` of the lines.
    #[inline(always)]
    fn quarter<S: Simd>(self, s: S, g: usize) {
        let n = self.lines.len();
        for line in self.lines.get(g * n / 4..(g + 1) * n / 4).unwrap_or(&[]) {
            fetch(s, line, self.fetch);
        }
    }
}

/// Add one block to the accumulators of `G` tokens.
///
/// The sums of the tokens go in lockstep, because each step waits five cycles for the one before.
#[inline(always)]
fn lockstep<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    factors: Factors<S::F>,
    x: &[QBlock; G],
    acc: &mut [S::F; G],
    ahead: Ahead<'_>,
) {
    debug_assert_eq!(matches!(factors, Factors::SubBlocks { .. }), Q::SUB_BLOCKS);
    if const { Q::SUB_BLOCKS } {
        let Factors::SubBlocks { scale, scales, mins } = factors else { return };
        sub_blocks::<S, Q, G>(s, w, (scale, scales), x, acc, ahead);
        if const { Q::HAS_MIN }
            && let Some(mins) = mins
        {
            minima(s, mins, x, acc);
        }
    } else {
        let Factors::Whole { scale, min } = factors else { return };
        whole::<S, Q, G>(s, w, (scale, min), x, acc, ahead);
    }
}

/// Add a block that has one scale.
#[inline(always)]
fn whole<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    (scale, min): (S::F, Option<S::F>),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
    ahead: Ahead<'_>,
) {
    let mut sums = [s.isplat(0); G];
    if const { has_few_bits::<S, Q>() } {
        for g in 0..4 {
            ahead.quarter(s, g);
        }
        for i in 0..G {
            sums[i] = few_bits::<S, Q, 8>(s, w, &x[i], 0, x[i].correction_128);
        }
    } else {
        let mut more = [s.isplat(0); G];
        for i in 0..G {
            sums[i] = start::<S, Q>(s, &x[i], x[i].correction_128);
        }
        for g in 0..4 {
            ahead.quarter(s, g);
            for i in 0..G {
                sums[i] = dot::<S, Q>(s, sums[i], w[2 * g], x[i].q[2 * g]);
            }
            for i in 0..G {
                // With few tokens there are two sums for each.
                let sum = if const { G <= 2 } { &mut more[i] } else { &mut sums[i] };
                *sum = dot::<S, Q>(s, *sum, w[2 * g + 1], x[i].q[2 * g + 1]);
            }
        }
        if const { G <= 2 } {
            for i in 0..G {
                sums[i] = s.iadd(sums[i], more[i]);
            }
        }
    }
    scale_sums(s, sums, (scale, min), x, acc);
}

/// Add a block whose two sub-blocks have scales of their own.
#[inline(always)]
fn sub_blocks<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    (scale, scales): (S::F, [S::F; 2]),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
    ahead: Ahead<'_>,
) {
    let mut total = [s.splat(0.0); G];
    for h in 0..2 {
        ahead.quarter(s, 2 * h);
        let mut sums = [s.isplat(0); G];
        for i in 0..G {
            let correction = if h == 0 {
                x[i].first_correction_128
            } else {
                x[i].correction_128.wrapping_sub(x[i].first_correction_128)
            };
            sums[i] = if const { has_few_bits::<S, Q>() } {
                few_bits::<S, Q, 4>(s, &w.as_chunks().0[h], &x[i], 4 * h, correction)
            } else {
                start::<S, Q>(s, &x[i], correction)
            };
        }
        if const { !has_few_bits::<S, Q>() } {
            for g in 0..4 {
                for i in 0..G {
                    sums[i] = dot::<S, Q>(s, sums[i], w[4 * h + g], x[i].q[4 * h + g]);
                }
            }
        }
        ahead.quarter(s, 2 * h + 1);
        for i in 0..G {
            let sum = s.to_float(sums[i]);
            total[i] = if h == 0 { s.mul(sum, scales[0]) } else { s.fma(sum, scales[1], total[i]) };
        }
    }
    for i in 0..G {
        acc[i] = s.fma(total[i], s.mul(scale, s.splat(x[i].d)), acc[i]);
    }
}

/// The activations of `n` tokens, block by block: `[n_blocks, n]`.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    blocks: &'a [QBlock],
    n: usize,
    /// The caches that the panel is fetched to. It may be far away when its first tokens meet it,
    /// and is near for the groups after them.
    fetch: Fetch,
}

/// The sums of a tile, and the tokens that they still have to meet.
struct TileSums<'a, S: Simd, const N: usize, const G: usize> {
    s: S,
    x: Tokens<'a>,
    /// The blocks of activations that meet the next block of weights, and all after them. One
    /// address that grows: with an index, or an address a token, the processor issues half as much.
    rest: &'a [QBlock],
    acc: [[S::F; G]; N],
}

impl<S: Simd, const N: usize, const G: usize> TileSums<'_, S, N, G> {
    /// Add the products of the blocks of one section.
    #[inline(always)]
    fn add<Q: Format>(&mut self, head: [S::F; 2], section: &[u8]) {
        let (s, x) = (self.s, self.x);
        // Every section would wait for its line of scales.
        if Q::SCALE_BYTES > 0
            && let Some(scales) = section.first()
        {
            fetch(s, scales, x.fetch);
        }
        for (scales, quants) in layout::blocks::<Q>(section) {
            let Some(tokens) = self.rest.as_chunks().0.first_chunk::<N>() else { break };
            self.rest = self.rest.get(x.n..).unwrap_or(&[]);
            let ahead = Ahead::of(quants, x.fetch);
            let w = Q::vectors(s, quants);
            let factors = Q::factors(s, head, scales);
            // Straight code, because the compiler leaves a loop rolled up, with the
            // accumulators in memory.
            const { assert!(0 < N && N <= 2) }
            lockstep::<S, Q, G>(s, &w, factors, &tokens[0], &mut self.acc[0], ahead);
            if N > 1 {
                lockstep::<S, Q, G>(s, &w, factors, &tokens[1], &mut self.acc[1], Ahead::NOTHING);
            }
        }
    }
}

/// Compute one tile: one panel times `N * G` tokens, those from `first` on.
#[inline(always)]
fn tile<S: Simd, Q: Format, const N: usize, const G: usize>(
    s: S,
    panel: &[u8],
    x: Tokens<'_>,
    first: usize,
    sink: &mut Sink<'_, '_>,
) {
    let mut sums = TileSums { s, x, rest: x.blocks.get(first..).unwrap_or(&[]), acc: [[s.splat(0.0); G]; N] };
    // No panics here: the loop stays free of bounds checks that unwind. This says that the tokens
    // are there.
    debug_assert!(first + N * G <= x.n && x.blocks.len().is_multiple_of(x.n));
    for (head, group) in panel.chunks(Q::UNIT_BYTES).flat_map(layout::groups::<Q>) {
        fetch(s, head, x.fetch);
        let head = Q::head(s, head);
        if const { Q::HEAD_BYTES == 0 } {
            for section in group.chunks(Q::SECTION_BYTES) {
                sums.add::<Q>(head, section);
            }
        } else {
            // Super-blocks are whole, so sections are, and the compiler unrolls them.
            debug_assert!(group.len().is_multiple_of(Q::SECTION_BYTES));
            for section in group.chunks_exact(Q::SECTION_BYTES) {
                sums.add::<Q>(head, section);
            }
        }
    }
    let acc = sums.acc;
    for (i, y) in acc.as_flattened().iter().enumerate() {
        sink.put(s, first + i, *y);
    }
}

/// Fetch as many bytes as `x` has, ahead of it.
#[inline(always)]
fn fetch<S: Simd, T>(s: S, x: &T, to: Fetch) {
    if to == Fetch::Both {
        s.prefetch_l2(x, Fetch::SECOND_AHEAD);
        s.prefetch(x, Fetch::FIRST_FROM_SECOND);
    } else if to == Fetch::First {
        s.prefetch(x, Fetch::FIRST_AHEAD);
    }
}

/// Multiply all panels by the rows `x`, of which the first is row `first` of the output.
///
/// The rows should fit the second cache: all of them pass every panel.
#[inline(always)]
pub(super) fn multiply_near<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    first: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    for (p, panel) in panels::<Q>(w, n_blocks).enumerate() {
        for (i, x) in x.chunks(GROUP * n_blocks).enumerate() {
            let n = x.len() / n_blocks;
            let fetch = if i == 0 { Fetch::for_tokens(n) } else { Fetch::Nothing };
            let x = Tokens { blocks: x, n, fetch };
            let mut sink = Sink { out: &mut *out, panel: p, token: first + i * GROUP, write };
            tiles::<S, Q>(s, panel, x, &mut sink);
        }
    }
}

/// Multiply one panel by one group of tokens, in the tallest tiles that the registers hold.
#[inline(always)]
fn tiles<S: Simd, Q: Format>(s: S, panel: &[u8], x: Tokens<'_>, sink: &mut Sink<'_, '_>) {
    let mut t = 0;
    while t < x.n {
        match x.n - t {
            12.. if const { S::N_REGISTERS >= 32 } => {
                tile::<S, Q, 2, 6>(s, panel, x, t, sink);
                t += 12;
            }
            8.. if const { S::N_REGISTERS >= 32 } => {
                tile::<S, Q, 2, 4>(s, panel, x, t, sink);
                t += 8;
            }
            4.. if const { S::N_REGISTERS >= 32 } => {
                tile::<S, Q, 1, 4>(s, panel, x, t, sink);
                t += 4;
            }
            2.. if const { S::N_REGISTERS >= 8 } => {
                tile::<S, Q, 1, 2>(s, panel, x, t, sink);
                t += 2;
            }
            _ => {
                // A loop for each way to fetch, so that none of them asks. The panel is near for
                // the last token of several.
                match x.fetch {
                    Fetch::First if t == 0 => {
                        tile::<S, Q, 1, 1>(s, panel, Tokens { fetch: Fetch::First, ..x }, t, sink);
                    }
                    Fetch::Both if t == 0 => {
                        tile::<S, Q, 1, 1>(s, panel, Tokens { fetch: Fetch::Both, ..x }, t, sink);
                    }
                    _ => tile::<S, Q, 1, 1>(s, panel, Tokens { fetch: Fetch::Nothing, ..x }, t, sink),
                }
                t += 1;
            }
        }
    }
}
