//! Quantised weights times quantised activations.

use super::write_lanes;
use crate::isa::{LANES, Simd};
use crate::matmul::Write;
use crate::pool::Band;
use crate::quantized::{GROUP, QBlock};

/// A way in which 32 columns of a panel are stored.
trait Format {
    /// The scales of a block.
    type Scales: bytemuck::Pod;
    /// The elements of a block.
    type Quants: bytemuck::Pod;
    /// The elements as eight vectors: vector g holds four columns from 4g of each row.
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8];
    /// What the integer sum over a block starts from.
    fn start<S: Simd>(s: S, x: &QBlock) -> S::I;
    /// Adds the products of four columns.
    fn dot<S: Simd>(s: S, acc: S::I, w: S::B, x: i32) -> S::I;
    /// What to multiply a block by, and for formats with a minimum, the minimum.
    fn scales<S: Simd>(s: S, scales: &Self::Scales) -> (S::F, Option<S::F>);
}

struct Q8_0;
struct Q4_0;
struct Q4_1;

impl Format for Q8_0 {
    type Scales = [u16; LANES];
    type Quants = [[u8; 64]; 8];
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        let [a, b, c, d, e, f, g, h] = quants;
        [s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d), s.bytes(e), s.bytes(f), s.bytes(g), s.bytes(h)]
    }
    #[inline(always)]
    fn start<S: Simd>(s: S, x: &QBlock) -> S::I {
        s.start_biased(x.less_128)
    }
    #[inline(always)]
    fn dot<S: Simd>(s: S, acc: S::I, w: S::B, x: i32) -> S::I {
        s.dot_biased(acc, w, x)
    }
    #[inline(always)]
    fn scales<S: Simd>(s: S, scales: &Self::Scales) -> (S::F, Option<S::F>) {
        (s.load_f16(scales), None)
    }
}

#[inline(always)]
fn nibbles<S: Simd>(s: S, [a, b, c, d]: &[[u8; 64]; 4]) -> [S::B; 8] {
    let ((a, e), (b, f)) = (s.nibbles(s.bytes(a)), s.nibbles(s.bytes(b)));
    let ((c, g), (d, h)) = (s.nibbles(s.bytes(c)), s.nibbles(s.bytes(d)));
    [a, b, c, d, e, f, g, h]
}

impl Format for Q4_0 {
    type Scales = [u16; LANES];
    type Quants = [[u8; 64]; 4];
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        nibbles(s, quants)
    }
    #[inline(always)]
    fn start<S: Simd>(s: S, x: &QBlock) -> S::I {
        s.isplat(x.less_8)
    }
    #[inline(always)]
    fn dot<S: Simd>(s: S, acc: S::I, w: S::B, x: i32) -> S::I {
        s.dot_small(acc, w, x)
    }
    #[inline(always)]
    fn scales<S: Simd>(s: S, scales: &Self::Scales) -> (S::F, Option<S::F>) {
        (s.load_f16(scales), None)
    }
}

impl Format for Q4_1 {
    type Scales = [[u16; LANES]; 2];
    type Quants = [[u8; 64]; 4];
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        nibbles(s, quants)
    }
    #[inline(always)]
    fn start<S: Simd>(s: S, _: &QBlock) -> S::I {
        s.isplat(0)
    }
    #[inline(always)]
    fn dot<S: Simd>(s: S, acc: S::I, w: S::B, x: i32) -> S::I {
        s.dot_small(acc, w, x)
    }
    #[inline(always)]
    fn scales<S: Simd>(s: S, [d, m]: &Self::Scales) -> (S::F, Option<S::F>) {
        (s.load_f16(d), Some(s.load_f16(m)))
    }
}

/// One block of `G` tokens: their sums go in lockstep, because each step waits five cycles for the one before.
#[inline(always)]
fn lockstep<S: Simd, Q: Format, const G: usize>(
    s: S,
    w: &[S::B; 8],
    (scale, min): (S::F, Option<S::F>),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    let mut sums = [s.isplat(0); G];
    let mut more = [s.isplat(0); G];
    for i in 0..G {
        sums[i] = Q::start(s, &x[i]);
    }
    for g in 0..4 {
        for i in 0..G {
            sums[i] = Q::dot(s, sums[i], w[2 * g], x[i].q[2 * g]);
        }
        for i in 0..G {
            // With few tokens there are two sums for each.
            let sum = if G <= 2 { &mut more[i] } else { &mut sums[i] };
            *sum = Q::dot(s, *sum, w[2 * g + 1], x[i].q[2 * g + 1]);
        }
    }
    if G <= 2 {
        for i in 0..G {
            sums[i] = s.iadd(sums[i], more[i]);
        }
    }
    for i in 0..G {
        acc[i] = s.fma(s.to_float(sums[i]), s.mul(scale, s.splat(x[i].d)), acc[i]);
        if let Some(min) = min {
            acc[i] = s.fma(min, s.splat(x[i].sum), acc[i]);
        }
    }
}

/// One panel of weights.
struct Panel<'a, Q: Format> {
    scales: &'a [Q::Scales],
    quants: &'a [Q::Quants],
}

/// `n` tokens, block by block.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    blocks: &'a [QBlock],
    n: usize,
    /// Whether the panel may be far away: these are the first tokens that it meets.
    fetch: bool,
}

/// Where the outputs of one panel and group of tokens go.
struct Sink<'b, 'a> {
    out: &'b mut Band<'a, f32>,
    panel: usize,
    /// The group's first.
    token: usize,
    write: Write,
}

impl Sink<'_, '_> {
    // No closure: those are compiled without the instruction set's features, and called.
    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, token: usize, y: S::F) {
        write_lanes(s, y, self.out, self.token + token, self.panel, self.write);
    }
}

/// One panel times `N * G` tokens, those from `first` on.
#[inline(always)]
fn tile<S: Simd, Q: Format, const N: usize, const G: usize>(
    s: S,
    panel: &Panel<'_, Q>,
    x: Tokens<'_>,
    first: usize,
    sink: &mut Sink<'_, '_>,
) {
    let mut acc = [[s.splat(0.0); G]; N];
    // An address that grows, for all tokens: with an index or more addresses, the processor issues half as much.
    let mut rest = x.blocks.get(first..).unwrap_or(&[]);
    for (scales, quants) in panel.scales.iter().zip(panel.quants) {
        let Some(tokens) = rest.as_chunks().0.first_chunk::<N>() else { break };
        rest = rest.get(x.n..).unwrap_or(&[]);
        if x.fetch {
            s.prefetch(quants, AHEAD);
        }
        let w = Q::vectors(s, quants);
        let scales = Q::scales(s, scales);
        // Straight code, because the compiler leaves a loop rolled up, with the accumulators in memory.
        const { assert!(0 < N && N <= 2) }
        lockstep::<S, Q, G>(s, &w, scales, &tokens[0], &mut acc[0]);
        if N > 1 {
            lockstep::<S, Q, G>(s, &w, scales, &tokens[1], &mut acc[1]);
        }
    }
    for (i, y) in acc.as_flattened().iter().enumerate() {
        sink.put(s, first + i, *y);
    }
}

/// Bytes between what is multiplied and what is fetched to the caches: enough for the memory's latency.
const AHEAD: usize = 4096;

/// All panels times all rows.
#[inline(always)]
fn multiply<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let group = GROUP * n_blocks;
    let n_groups = (FIT / size_of::<QBlock>() / group).max(1);
    for (i, x) in x.chunks(n_groups * group).enumerate() {
        multiply_near::<S, Q>(s, w, x, n_blocks, i * n_groups * GROUP, out, write);
    }
}

/// Bytes of activations that stay in the second cache while one panel after the other passes.
const FIT: usize = 1 << 20;

/// All panels times the rows `x`, of which the first is row `first` of the output.
#[inline(always)]
fn multiply_near<S: Simd, Q: Format>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    first: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    let n_scale_bytes = n_blocks * size_of::<Q::Scales>();
    let panel_bytes = n_scale_bytes.next_multiple_of(64) + n_blocks * size_of::<Q::Quants>();
    for (p, panel) in w.chunks_exact(panel_bytes).enumerate() {
        let scales = bytemuck::cast_slice(&panel[..n_scale_bytes]);
        let quants = bytemuck::cast_slice(&panel[n_scale_bytes.next_multiple_of(64)..]);
        let panel = Panel::<Q> { scales, quants };
        for (i, x) in x.chunks(GROUP * n_blocks).enumerate() {
            let x = Tokens { blocks: x, n: x.len() / n_blocks, fetch: i == 0 };
            let mut sink = Sink { out: &mut *out, panel: p, token: first + i * GROUP, write };
            tiles(s, &panel, x, &mut sink);
        }
    }
}

/// One panel times one group of tokens.
#[inline(always)]
fn tiles<S: Simd, Q: Format>(s: S, panel: &Panel<'_, Q>, x: Tokens<'_>, sink: &mut Sink<'_, '_>) {
    let mut t = 0;
    while t < x.n {
        match x.n - t {
            GROUP.. if S::N_REGISTERS >= 32 => {
                tile::<S, Q, 2, 6>(s, panel, x, t, sink);
                t += 12;
            }
            8.. if S::N_REGISTERS >= 32 => {
                tile::<S, Q, 2, 4>(s, panel, x, t, sink);
                t += 8;
            }
            4.. if S::N_REGISTERS >= 32 => {
                tile::<S, Q, 1, 4>(s, panel, x, t, sink);
                t += 4;
            }
            2.. if S::N_REGISTERS >= 8 => {
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

/// Q8_0.
#[inline(always)]
pub(crate) fn multiply_q8_0<S: Simd>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, Q8_0>(s, w, x, n_blocks, out, write);
}

/// Q4_0.
#[inline(always)]
pub(crate) fn multiply_q4_0<S: Simd>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, Q4_0>(s, w, x, n_blocks, out, write);
}

/// Q4_1.
#[inline(always)]
pub(crate) fn multiply_q4_1<S: Simd>(
    s: S,
    w: &[u8],
    x: &[QBlock],
    n_blocks: usize,
    out: &mut Band<'_, f32>,
    write: Write,
) {
    multiply::<S, Q4_1>(s, w, x, n_blocks, out, write);
}
