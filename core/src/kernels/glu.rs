//! Gated activations: one half of a feed-forward network decides how much of the other half passes
//! (Shazeer, 2020, arXiv 2002.05202).
//!
//! The functions of two slices write to their first, up to the end of the shorter.
//!
//! Names say the order: `silu_mul` activates the slice that it writes to, `mul_silu` multiplies it
//! by the activated other one.

use super::map::update;
use crate::isa::Simd;
use crate::math;

/// `gate[i] = silu(gate[i]) * up[i]`.
#[inline(always)]
pub(crate) fn silu_mul<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    update!(s, gate, up, |g, u| s.mul(math::silu(s, g), u));
}

/// `gate[i] = gelu(gate[i]) * up[i]`, by the tanh form.
#[inline(always)]
pub(crate) fn gelu_mul<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    update!(s, gate, up, |g, u| s.mul(math::gelu(s, g), u));
}

/// `x[i] *= silu(gate[i])`: the gate behind a Mamba-2 scan.
#[inline(always)]
pub(crate) fn mul_silu<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, math::silu(s, g)));
}

/// `x[i] *= gelu(gate[i])`, by the tanh form.
#[inline(always)]
pub(crate) fn mul_gelu<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, math::gelu(s, g)));
}

/// `x[i] *= max(gate[i], 0)`.
#[inline(always)]
pub(crate) fn mul_relu<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, s.max(s.splat(0.0), g)));
}

/// `x[i] *= max(gate[i], 0)^2`.
#[inline(always)]
pub(crate) fn mul_squared_relu<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, math::squared_relu(s, g)));
}

/// `x[i] = (x[i] + 1) * g * sigmoid(1.702 * g)`, where g is `gate[i]` and at most 7, and `x[i]` is
/// taken between -7 and 7: the gate of gpt-oss (OpenAI, 2025, arXiv 2508.10925).
#[inline(always)]
pub(crate) fn mul_clamped_swish<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| {
        let limit = s.splat(7.0);
        let g = s.min(limit, g);
        let x = s.max(s.splat(-7.0), s.min(limit, x));
        let swish = s.mul(g, math::sigmoid(s, s.mul(g, s.splat(1.702))));
        s.mul(s.add(x, s.splat(1.0)), swish)
    });
}

/// `x[i] *= tanh(gate[i])`.
#[inline(always)]
pub(crate) fn mul_tanh<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, math::tanh(s, g)));
}

/// `x[i] *= sigmoid(gate[i])`.
#[inline(always)]
pub(crate) fn mul_sigmoid<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    update!(s, x, gate, |x, g| s.mul(x, math::sigmoid(s, g)));
}
