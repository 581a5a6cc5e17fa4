//! Quantised weights times quantised activations.

use super::format::{Bias, Factors, Format, Mins};
use super::write_lanes;
use crate::isa::{Simd, cache, stream};
use crate::matmul::Write;
use crate::packed::layout;
use crate::pool::Band;
use crate::quantized::{GROUP, QBlock};

/// What an integer sum starts from; `correction` is -128 times the sum of the activations.
#[inline(always)]
fn start<S: Simd, Q: Format>(s: S, x: &QBlock, correction: i32) -> S::I {
    match Q::BIAS {
        Bias::None => s.isplat(0),
        Bias::Eight => s.isplat(x.less_8),
        Bias::Signed => s.start_biased(correction),
    }
}

/// Adds the products of four columns.
#[inline(always)]
fn dot<S: Simd, Q: Format>(s: S, acc: S::I, w: S::B, x: i32) -> S::I {
    if matches!(Q::BIAS, Bias::Signed) { s.dot_biased(acc, w, x) } else { s.dot_small(acc, w, x) }
}

/// The whole sum of one token with `N` vectors, from the first of `x.q[from..]`.
#[inline(always)]
fn few_bits<S: Simd, Q: Format, const N: usize>(
    s: S,
    w: &[S::B; N],
    x: &QBlock,
    from: usize,
    correction: i32,
) -> S::I {
    let start = match Q::BIAS {
        Bias::None => 0,
        Bias::Eight => x.less_8,
        Bias::Signed => correction,
    };
    let zero = s.isplat(0);
    let Some(q) = x.q.get(from..).and_then(|q| q.first_chunk()) else { return zero };
    let sum = match Q::BITS {
        0..=4 => s.dot_few_bits::<N, 4>(zero, w, q),
        5 => s.dot_few_bits::<N, 5>(zero, w, q),
        6 => s.dot_few_bits::<N, 6>(zero, w, q),
        _ => s.dot_few_bits::<N, 7>(zero, w, q),
    };
    s.iadd(s.ishl(sum, Q::SHIFT), s.isplat(start))
}

/// Whether sums are those of [`few_bits`].
const fn has_few_bits<S: Simd, Q: Format>() -> bool {
    S::FEW_BITS && Q::BITS < 8
}

/// One block of `G` tokens: their sums go in lockstep, because each step waits five cycles for the one before.
#[inline(always)]
fn lockstep<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    factors: Factors<S::F>,
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    debug_assert_eq!(matches!(factors, Factors::Halves { .. }), Q::HALVES);
    match factors {
        Factors::Whole { scale, min } => whole::<S, Q, G>(s, w, (scale, min), x, acc),
        Factors::Halves { scale, strips, mins } => {
            halves::<S, Q, G>(s, w, (scale, strips), x, acc);
            if let Some(mins) = mins {
                minima(s, mins, x, acc);
            }
        }
    }
}

/// The same where the block has one scale.
#[inline(always)]
fn whole<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    (scale, min): (S::F, Option<S::F>),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    let mut sums = [s.isplat(0); G];
    let mut more = [s.isplat(0); G];
    if has_few_bits::<S, Q>() {
        for i in 0..G {
            sums[i] = few_bits::<S, Q, 8>(s, w, &x[i], 0, x[i].less_128);
        }
        return scale_sums(s, sums, (scale, min), x, acc);
    }
    for i in 0..G {
        sums[i] = start::<S, Q>(s, &x[i], x[i].less_128);
    }
    for g in 0..4 {
        for i in 0..G {
            sums[i] = dot::<S, Q>(s, sums[i], w[2 * g], x[i].q[2 * g]);
        }
        for i in 0..G {
            // With few tokens there are two sums for each.
            let sum = if G <= 2 { &mut more[i] } else { &mut sums[i] };
            *sum = dot::<S, Q>(s, *sum, w[2 * g + 1], x[i].q[2 * g + 1]);
        }
    }
    if G <= 2 {
        for i in 0..G {
            sums[i] = s.iadd(sums[i], more[i]);
        }
    }
    scale_sums(s, sums, (scale, min), x, acc);
}

/// Adds sums of blocks to the accumulators.
#[inline(always)]
fn scale_sums<S: Simd, const G: usize>(
    s: S,
    sums: [S::I; G],
    (scale, min): (S::F, Option<S::F>),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    for i in 0..G {
        acc[i] = s.fma(s.to_float(sums[i]), s.mul(scale, s.splat(x[i].d)), acc[i]);
        if let Some(min) = min {
            acc[i] = s.fma(min, s.splat(x[i].sum), acc[i]);
        }
    }
}

/// The same where its halves have factors of their own.
#[inline(always)]
fn halves<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    (scale, strips): (S::F, [S::F; 2]),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    let mut total = [s.splat(0.0); G];
    for h in 0..2 {
        let mut sums = [s.isplat(0); G];
        for i in 0..G {
            let correction = if h == 0 { x[i].first } else { x[i].less_128.wrapping_sub(x[i].first) };
            sums[i] = if has_few_bits::<S, Q>() {
                few_bits::<S, Q, 4>(s, &w.as_chunks().0[h], &x[i], 4 * h, correction)
            } else {
                start::<S, Q>(s, &x[i], correction)
            };
        }
        for g in 0..4 {
            for i in 0..G {
                if !has_few_bits::<S, Q>() {
                    sums[i] = dot::<S, Q>(s, sums[i], w[4 * h + g], x[i].q[4 * h + g]);
                }
            }
        }
        for i in 0..G {
            let sum = s.to_float(sums[i]);
            total[i] = if h == 0 { s.mul(sum, strips[0]) } else { s.fma(sum, strips[1], total[i]) };
        }
    }
    for i in 0..G {
        acc[i] = s.fma(total[i], s.mul(scale, s.splat(x[i].d)), acc[i]);
    }
}

/// Adds the minima of the halves.
#[inline(always)]
fn minima<S: Simd, const G: usize>(s: S, mins: Mins<S::F>, x: &[QBlock; G], acc: &mut [S::F; G]) {
    for i in 0..G {
        let first = s.to_float(s.isplat(x[i].first));
        let second = s.to_float(s.isplat(x[i].less_128.wrapping_sub(x[i].first)));
        let total = s.fma(second, mins.strips[1], s.mul(first, mins.strips[0]));
        acc[i] = s.fma(total, s.mul(mins.scale, s.splat(x[i].d)), acc[i]);
    }
}

/// The panels in `w`, each of `n_blocks` blocks.
#[inline(always)]
pub(super) fn panels<Q: Format>(w: &[u8], n_blocks: usize) -> impl ExactSizeIterator<Item = &[u8]> {
    w.chunks_exact(layout::panel_bytes::<Q>(n_blocks).max(1))
}

/// `n` tokens, block by block.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    blocks: &'a [QBlock],
    n: usize,
    /// Whether the panel is fetched ahead: it may be far away, as these are the first tokens that it meets. One token alone may
    /// read faster than fetches could be issued, where the processor sees its one stream by itself.
    fetch: bool,
}

/// Where the outputs of one panel and group of tokens go.
pub(super) struct Sink<'b, 'a> {
    pub out: &'b mut Band<'a, f32>,
    pub panel: usize,
    /// The group's first.
    pub token: usize,
    pub write: Write,
}

impl Sink<'_, '_> {
    // No closure: those are compiled without the instruction set's features, and called.
    #[inline(always)]
    pub(super) fn put<S: Simd>(&mut self, s: S, token: usize, y: S::F) {
        write_lanes(s, y, self.out, self.token + token, self.panel, self.write);
    }
}

/// One panel times `N * G` tokens, those from `first` on.
#[inline(always)]
fn tile<S: Simd, Q: Format, const N: usize, const G: usize>(
    s: S,
    panel: &[u8],
    x: Tokens<'_>,
    first: usize,
    sink: &mut Sink<'_, '_>,
) {
    let mut acc = [[s.splat(0.0); G]; N];
    // An address that grows, for all tokens: with an index or more addresses, the processor issues half as much.
    let mut rest = x.blocks.get(first..).unwrap_or(&[]);
    let groups = panel.chunks(Q::UNIT_BYTES).flat_map(layout::groups::<Q>);
    for (head, group) in groups {
        if x.fetch {
            s.prefetch(head, AHEAD);
        }
        for section in group.chunks(Q::SECTION_BYTES) {
            // Every section would wait for its line of scales.
            if x.fetch
                && Q::SCALE_BYTES > 0
                && let Some(scales) = section.first()
            {
                s.prefetch(scales, AHEAD);
            }
            for (scales, quants) in layout::blocks::<Q>(section) {
                let Some(tokens) = rest.as_chunks().0.first_chunk::<N>() else { break };
                rest = rest.get(x.n..).unwrap_or(&[]);
                if x.fetch {
                    s.prefetch(quants, AHEAD);
                }
                let w = Q::vectors(s, quants);
                let factors = Q::factors(s, head, scales);
                // Straight code, because the compiler leaves a loop rolled up, with the accumulators in memory.
                const { assert!(0 < N && N <= 2) }
                lockstep::<S, Q, G>(s, &w, factors, &tokens[0], &mut acc[0]);
                if N > 1 {
                    lockstep::<S, Q, G>(s, &w, factors, &tokens[1], &mut acc[1]);
                }
            }
        }
    }
    for (i, y) in acc.as_flattened().iter().enumerate() {
        sink.put(s, first + i, *y);
    }
}

/// Bytes between what is multiplied and what is fetched to the caches: enough for the memory's latency, and more than a page,
/// where processors stop that fetch by themselves.
const AHEAD: usize = 8192;

/// All panels times all rows.
#[inline(always)]
pub(super) fn multiply<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let group = GROUP * n_blocks;
    // Half of the second cache holds activations, while one panel after the other passes.
    let n_groups = (cache::quarters(2) / size_of::<QBlock>() / group).max(1);
    for (i, x) in x.chunks(n_groups * group).enumerate() {
        multiply_near::<S, Q>(s, w, x, n_blocks, i * n_groups * GROUP, out, write);
    }
}

/// All panels times the rows `x`, of which the first is row `first` of the output.
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
    let fetch_for_one = !stream::follows_alone();
    for (p, panel) in panels::<Q>(w, n_blocks).enumerate() {
        for (i, x) in x.chunks(GROUP * n_blocks).enumerate() {
            let x = Tokens {
                blocks: x,
                n: x.len() / n_blocks,
                fetch: i == 0 && (x.len() > n_blocks || fetch_for_one),
            };
            let mut sink = Sink { out: &mut *out, panel: p, token: first + i * GROUP, write };
            tiles::<S, Q>(s, panel, x, &mut sink);
        }
    }
}

/// One panel times one group of tokens.
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
                tile::<S, Q, 1, 1>(s, panel, x, t, sink);
                t += 1;
            }
        }
    }
}

macro_rules! kernels {
    ($($name:ident: $format:ident;)*) => {
        $(#[inline(always)]
        pub(crate) fn $name<S: Simd>(
            s: S,
            w: &[u8],
            x: &[QBlock],
            n_blocks: usize,
            out: &mut Band<'_, f32>,
            write: Write,
        ) {
            multiply::<S, layout::$format>(s, w, x, n_blocks, out, write);
        })*
    };
}

kernels! {
    multiply_q8_0: Q8_0;
    multiply_q4_0: Q4_0;
    multiply_q4_1: Q4_1;
    multiply_q5_0: Q5_0;
    multiply_q5_1: Q5_1;
    multiply_q2_k: Q2_K;
    multiply_q3_k: Q3_K;
    multiply_q4_k: Q4_K;
    multiply_q5_k: Q5_K;
    multiply_q6_k: Q6_K;
    multiply_iq4_nl: IQ4_NL;
    multiply_iq4_xs: IQ4_XS;
    multiply_mxfp4: MXFP4;
    multiply_tq2_0: TQ2_0;
}
