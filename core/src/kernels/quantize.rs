//! Floats to blocks of 8-bit integers.
//!
//! The rounding is `q = round(x * (127 / max))`, ties to even, with the scale `d = max / 127`; see
//! [`QBlock`].

use crate::block::activations::QBlock;
use crate::format::layout::BLOCK;
use crate::isa::Simd;

/// Quantise rows of `n_blocks` blocks. In `out` the first blocks of all rows come first, then all
/// second ones.
#[inline(always)]
pub(crate) fn quantize<S: Simd>(s: S, x: &[[f32; BLOCK]], n_blocks: usize, out: &mut [QBlock]) {
    let n_rows = out.len() / n_blocks;
    for (t, x) in x.chunks_exact(n_blocks).enumerate() {
        for (x, out) in x.iter().zip(out.chunks_exact_mut(n_rows)) {
            block(s, x, &mut out[t]);
        }
    }
}

// In place, because a block put together elsewhere and copied waits for its parts to be stored.
#[inline(always)]
fn block<S: Simd>(s: S, x: &[f32; BLOCK], out: &mut QBlock) {
    let [low, high]: &[_; 2] = bytemuck::must_cast_ref::<_, [[f32; 16]; 2]>(x);
    let (low, high) = (s.load(low), s.load(high));
    let infinite = s.splat(f32::INFINITY);
    let finite = s.lt(s.abs(low), infinite) & s.lt(s.abs(high), infinite) == u16::MAX;
    let max = s.largest(s.max(s.abs(low), s.abs(high)));
    let inverse = 127.0 / max;
    if !finite {
        *out = QBlock { d: f32::NAN, sum: f32::NAN, ..QBlock::default() };
        return;
    }
    // All are zero, or too small for 127 over the largest to be finite.
    if inverse == f32::INFINITY {
        *out = QBlock::default();
        return;
    }
    let inverse = s.splat(inverse);
    let (low, high) = (s.to_int(s.mul(low, inverse)), s.to_int(s.mul(high, inverse)));
    let [q_low, q_high] = bytemuck::must_cast_mut::<_, [[i8; 16]; 2]>(&mut out.q);
    s.store_i8(low, q_low);
    s.store_i8(high, q_high);
    let first = s.isum(low);
    let (d, total) = (max / 127.0, first + s.isum(high));
    out.d = d;
    out.sum = d * total as f32;
    out.correction_8 = -8 * total;
    out.correction_128 = -128 * total;
    out.first_correction_128 = -128 * first;
}
