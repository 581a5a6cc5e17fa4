//! Functions applied to every element of a slice.

use crate::isa::{LANES, Simd};
use crate::math;

/// Applies `f` to all of `x`, sixteen at a time; a ragged tail is padded with zeros.
#[inline(always)]
pub(crate) fn in_place<S: Simd>(s: S, x: &mut [f32], f: impl Fn(S::F) -> S::F) {
    let (body, tail) = x.as_chunks_mut::<LANES>();
    for chunk in body {
        s.store(f(s.load(chunk)), chunk);
    }
    if !tail.is_empty() {
        let mut padded = [0.0; LANES];
        padded[..tail.len()].copy_from_slice(tail);
        s.store(f(s.load(&padded)), &mut padded);
        tail.copy_from_slice(&padded[..tail.len()]);
    }
}

/// `x[i] = exp(x[i])`.
#[inline(always)]
pub(crate) fn exp_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::exp(s, v));
}
