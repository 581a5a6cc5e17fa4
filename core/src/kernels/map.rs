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

/// `x[i] = tanh(x[i])`.
#[inline(always)]
pub(crate) fn tanh_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::tanh(s, v));
}

/// `x[i] = 1 / (1 + exp(-x[i]))`.
#[inline(always)]
pub(crate) fn sigmoid_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::sigmoid(s, v));
}

/// `x[i] = x[i] / (1 + exp(-x[i]))`.
#[inline(always)]
pub(crate) fn silu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::silu(s, v));
}

/// `x[i] = gelu(x[i])`.
#[inline(always)]
pub(crate) fn gelu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::gelu(s, v));
}

/// `x[i] = x[i] / (1 + exp(-1.702 x[i]))`.
#[inline(always)]
pub(crate) fn gelu_quick_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::gelu_quick(s, v));
}

/// `x[i] = ln(1 + exp(x[i]))`.
#[inline(always)]
pub(crate) fn softplus_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place(s, x, |v| math::softplus(s, v));
}

/// `x[i] *= factor`.
#[inline(always)]
pub(crate) fn scale_in_place<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    in_place(s, x, |v| s.mul(v, s.splat(factor)));
}
