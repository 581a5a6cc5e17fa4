//! Quantised keys and values of a span as floats, 32 dimensions at a time, laid out as the kernels
//! of F32 caches want them.
//!
//! An element is `scale * q`, which is exact: eleven bits times eight. Attention over quantised
//! cells is therefore attention over F32 cells of these values, bit for bit, and a piece is small
//! enough to stay in the nearest caches.
//!
//! A kernel makes 32 dimensions of a whole span, eight blocks, at a time: 32 KiB of floats. Blocks
//! that no row of a bundle sees are left out.

use super::attention::{Panels, SPAN_BLOCKS, ahead};
use crate::cell::BLOCK_CELLS;
use crate::isa::{LANES, Simd};

/// Dimensions of a piece: those that share a scale.
pub const PIECE: usize = 32;

/// A piece of each block of a span: of K `[32 dimensions, 32 cells]`, of V `[32 cells, 32
/// dimensions]`.
pub type Floats = [[f32; PIECE * BLOCK_CELLS]; SPAN_BLOCKS];

/// Sixteen quants.
type Quants = [i8; LANES];

/// A format of quantised cells.
trait Format {
    /// Groups of sixteen bytes that 32 quants take.
    const GROUPS: usize;
}

struct Q8;
struct Q4;

impl Format for Q8 {
    const GROUPS: usize = 2;
}

impl Format for Q4 {
    const GROUPS: usize = 1;
}

/// Return the quants of a part in groups of sixteen, and its scales, 32 for each piece.
fn split<F: Format>(part: &[u8], n_pieces: usize) -> (&[Quants], &[[u16; LANES]]) {
    let n_quants = n_pieces * F::GROUPS * LANES * BLOCK_CELLS;
    let (quants, scales) = part.split_at(n_quants);
    let quants: &[i8] = bytemuck::cast_slice(quants);
    let scales: &[u16] = bytemuck::cast_slice(scales);
    (quants.as_chunks().0, scales.as_chunks().0)
}

/// Return sixteen quants as floats.
#[inline(always)]
fn bytes<S: Simd>(s: S, x: &Quants) -> S::F {
    s.to_float(s.load_i8(x))
}

/// Return two times sixteen quants as floats, from the low and the high halves of sixteen bytes.
#[inline(always)]
fn nibbles<S: Simd>(s: S, x: &Quants) -> [S::F; 2] {
    let (x, mask, middle) = (s.load_i8(x), s.isplat(15), s.isplat(8));
    [x, s.ishr::<4>(x)].map(|x| s.to_float(s.isub(s.iand(x, mask), middle)))
}

/// Make floats of piece `piece` of keys of `d_k` dimensions. Empty blocks are passed over.
/// Prefetches each next block.
#[inline(always)]
fn keys<S: Simd, F: Format>(s: S, parts: &Panels<'_>, d_k: usize, piece: usize, out: &mut Floats) {
    for (block, (part, out)) in parts.iter().zip(out).enumerate() {
        // No row sees the block.
        if part.is_empty() {
            continue;
        }
        let ahead = ahead(part, parts.get(block + 1));
        let (quants, scales) = split::<F>(part, d_k / PIECE);
        let scales = &scales.as_chunks::<2>().0[piece];
        let scales = [s.load_f16(&scales[0]), s.load_f16(&scales[1])];
        // Rows of 32 cells.
        let rows = &quants.as_chunks::<2>().0[piece * F::GROUPS * LANES..][..F::GROUPS * LANES];
        let out = out.as_chunks_mut().0.as_chunks_mut::<2>().0;
        let (low, high) = out.split_at_mut(F::GROUPS * LANES % PIECE);
        for (i, row) in rows.iter().enumerate() {
            s.prefetch(row, ahead);
            for half in 0..2 {
                if F::GROUPS == 2 {
                    s.store(s.mul(bytes(s, &row[half]), scales[half]), &mut high[i][half]);
                } else {
                    let [a, b] = nibbles(s, &row[half]);
                    s.store(s.mul(a, scales[half]), &mut low[i][half]);
                    s.store(s.mul(b, scales[half]), &mut high[i][half]);
                }
            }
        }
    }
}

/// Make floats of piece `piece` of values of `d_v` dimensions; the rest as for [`keys`].
#[inline(always)]
fn values<S: Simd, F: Format>(s: S, parts: &Panels<'_>, d_v: usize, piece: usize, out: &mut Floats) {
    for (block, (part, out)) in parts.iter().zip(out).enumerate() {
        // No row sees the block.
        if part.is_empty() {
            continue;
        }
        let ahead = ahead(part, parts.get(block + 1));
        let (quants, scales) = split::<F>(part, d_v / PIECE);
        let bits = &scales.as_chunks::<2>().0[piece];
        let mut scales = [[0.0; LANES]; 2];
        for (bits, scales) in bits.iter().zip(&mut scales) {
            s.store(s.load_f16(bits), scales);
        }
        let rows = quants.chunks_exact(F::GROUPS).skip(piece).step_by((d_v / PIECE).max(1));
        let out = out.as_chunks_mut().0.as_chunks_mut::<2>().0;
        for ((row, scale), [low, high]) in rows.zip(scales.as_flattened()).zip(out) {
            s.prefetch(&row[0], ahead);
            let [a, b] = match row {
                [x] => nibbles(s, x),
                [x, y, ..] => [bytes(s, x), bytes(s, y)],
                [] => return,
            };
            s.store(s.mul(a, s.splat(*scale)), low);
            s.store(s.mul(b, s.splat(*scale)), high);
        }
    }
}

macro_rules! formats {
    ($($keys:ident, $values:ident, $F:ident;)*) => { $(
        /// Call [`keys`] for one format.
        #[inline(always)]
        pub(crate) fn $keys<S: Simd>(s: S, parts: &Panels<'_>, d_k: usize, piece: usize, out: &mut Floats) {
            keys::<S, $F>(s, parts, d_k, piece, out);
        }
        /// Call [`values`] for one format.
        #[inline(always)]
        pub(crate) fn $values<S: Simd>(s: S, parts: &Panels<'_>, d_v: usize, piece: usize, out: &mut Floats) {
            values::<S, $F>(s, parts, d_v, piece, out);
        }
    )* };
}
formats! {
    keys_q8_0, values_q8_0, Q8;
    keys_q4_0, values_q4_0, Q4;
}
