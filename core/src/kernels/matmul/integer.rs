//! Quantised weights times quantised activations.

use super::write_lanes;
use crate::isa::{LANES, Simd};
use crate::matmul::Write;
use crate::pool::Band;
use crate::quantized::QBlock;

/// A way in which 32 columns of a panel are stored.
trait Format {
    /// The scales of a block.
    type Scales: bytemuck::Pod;
    /// The elements of a block.
    type Quants: bytemuck::Pod;
    /// The elements as eight vectors: vector g holds four columns from 4g of each row.
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8];
    /// The integer sum over a block.
    fn dot<S: Simd>(s: S, w: &[S::B; 8], x: &QBlock) -> S::I;
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
    fn dot<S: Simd>(s: S, w: &[S::B; 8], x: &QBlock) -> S::I {
        let mut sum = s.start_biased(x.less_128);
        for (w, x) in w.iter().zip(x.q) {
            sum = s.dot_biased(sum, *w, x);
        }
        sum
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

#[inline(always)]
fn dot_small<S: Simd>(s: S, start: i32, w: &[S::B; 8], x: &QBlock) -> S::I {
    let mut sum = s.isplat(start);
    for (w, x) in w.iter().zip(x.q) {
        sum = s.dot_small(sum, *w, x);
    }
    sum
}

impl Format for Q4_0 {
    type Scales = [u16; LANES];
    type Quants = [[u8; 64]; 4];
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        nibbles(s, quants)
    }
    #[inline(always)]
    fn dot<S: Simd>(s: S, w: &[S::B; 8], x: &QBlock) -> S::I {
        dot_small(s, x.less_8, w, x)
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
    fn dot<S: Simd>(s: S, w: &[S::B; 8], x: &QBlock) -> S::I {
        dot_small(s, 0, w, x)
    }
    #[inline(always)]
    fn scales<S: Simd>(s: S, [d, m]: &Self::Scales) -> (S::F, Option<S::F>) {
        (s.load_f16(d), Some(s.load_f16(m)))
    }
}

/// One panel times `T` rows.
#[inline(always)]
fn tile<S: Simd, Q: Format, const T: usize>(
    s: S,
    scales: &[Q::Scales],
    quants: &[Q::Quants],
    x: [&[QBlock]; T],
) -> [S::F; T] {
    let n = scales.len().min(quants.len());
    let (scales, quants, x) = (&scales[..n], &quants[..n], x.map(|x| &x[..n]));
    let mut acc = [s.splat(0.0); T];
    for b in 0..n {
        let w = Q::vectors(s, &quants[b]);
        let (scale, min) = Q::scales(s, &scales[b]);
        for t in 0..T {
            let x = &x[t][b];
            let sum = s.to_float(Q::dot(s, &w, x));
            acc[t] = s.fma(sum, s.mul(scale, s.splat(x.d)), acc[t]);
            if let Some(min) = min {
                acc[t] = s.fma(min, s.splat(x.sum), acc[t]);
            }
        }
    }
    acc
}

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
    let scale_bytes = (n_blocks * size_of::<Q::Scales>()).next_multiple_of(64);
    let panel_bytes = scale_bytes + n_blocks * size_of::<Q::Quants>();
    let n_tokens = out.n_rows();
    for (p, panel) in w.chunks_exact(panel_bytes).enumerate() {
        let (scales, quants) = panel.split_at(scale_bytes);
        let scales = &bytemuck::cast_slice(&scales[..n_blocks * size_of::<Q::Scales>()])[..n_blocks];
        let quants = bytemuck::cast_slice(quants);
        let row = |t: usize| &x[t * n_blocks..][..n_blocks];
        let mut t = 0;
        while t < n_tokens {
            let left = n_tokens - t;
            macro_rules! step {
                ($n:literal) => {{
                    let rows = core::array::from_fn(|i| row((t + i).min(n_tokens - 1)));
                    let y = tile::<S, Q, $n>(s, scales, quants, rows);
                    for (i, y) in y.into_iter().enumerate().take(left) {
                        write_lanes(s, y, out, t + i, p, write);
                    }
                    t += $n;
                }};
            }
            match left {
                1 => step!(1),
                2 => step!(2),
                3..=4 => step!(4),
                5..=12 => step!(8),
                _ => step!(16),
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
