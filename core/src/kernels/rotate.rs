//! Rotary position embedding, applied: pairs of dimensions are turned by tabulated angles.
//!
//! [`crate::rope`] makes the tables. The sine has its sign in the table, so both members of a pair
//! go through one formula.
//!
//! ```text
//! x'[first]  = x[first]  * cos - x[second] * sin
//! x'[second] = x[second] * cos + x[first]  * sin
//! ```

use super::map::{load, store};
use crate::float::fma;
use crate::isa::{LANES, Simd};

/// The dimensions that turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Neighbours: `(0, 1), (2, 3), ...`; called "norm" in GGUF tools.
    Adjacent,
    /// Half the rotated part apart: `(0, n_rot / 2), (1, n_rot / 2 + 1), ...`; called "neox".
    Split,
}

/// Rotate the first `n_rot` dimensions of each head of `d` elements in `x`, in place; the rest
/// stays.
///
/// `angles` is one row of the table, `[2, n_rot]`: cosines, then signed sines. Each element becomes
/// `fma(x, cos, partner * sin)`.
#[inline(always)]
pub(crate) fn rotate<S: Simd>(s: S, x: &mut [f32], d: usize, pairs: Pairs, angles: &[f32]) {
    let (cos, sin) = angles.split_at(angles.len() / 2);
    for head in x.chunks_exact_mut(d.max(1)) {
        let n_rot = cos.len().min(head.len());
        match pairs {
            Pairs::Adjacent => adjacent(s, &mut head[..n_rot], cos, sin),
            Pairs::Split => split(s, &mut head[..n_rot], cos, sin),
        }
    }
}

/// Turn neighbours: `(0, 1), (2, 3), ...`.
#[inline(always)]
fn adjacent<S: Simd>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let turn = |x, cos, sin| s.fma(x, cos, s.mul(s.swap_pairs(x), sin));
    let (body, tail) = x.as_chunks_mut::<LANES>();
    let (body_cos, tail_cos) = cos.as_chunks::<LANES>();
    let (body_sin, tail_sin) = sin.as_chunks::<LANES>();
    for ((x, cos), sin) in body.iter_mut().zip(body_cos).zip(body_sin) {
        s.store(turn(s.load(x), s.load(cos), s.load(sin)), x);
    }
    if !tail.is_empty() {
        store(s, turn(load(s, tail), load(s, tail_cos), load(s, tail_sin)), tail);
    }
}

/// Turn dimensions half the rotated part apart: `(0, n/2), (1, n/2 + 1), ...`.
#[inline(always)]
fn split<S: Simd>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = x.len() / 2;
    let (low, high) = x.split_at_mut(half);
    let (sin_low, sin_high) = (&sin[..half], &sin[half..]);
    let body = half / LANES * LANES;
    let (low_chunks, high_chunks) = (low.as_chunks_mut::<LANES>().0, high.as_chunks_mut::<LANES>().0);
    let angles = cos.as_chunks::<LANES>().0.iter().zip(sin_low.as_chunks().0).zip(sin_high.as_chunks().0);
    for ((low, high), ((cos, sin_low), sin_high)) in low_chunks.iter_mut().zip(high_chunks).zip(angles) {
        let (x, y, cos) = (s.load(low), s.load(high), s.load(cos));
        s.store(s.fma(x, cos, s.mul(y, s.load(sin_low))), low);
        s.store(s.fma(y, cos, s.mul(x, s.load(sin_high))), high);
    }
    for i in body..half {
        let (x, y) = (low[i], high[i]);
        low[i] = fma(x, cos[i], y * sin_low[i]);
        high[i] = fma(y, cos[i], x * sin_high[i]);
    }
}
