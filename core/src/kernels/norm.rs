//! Normalisation of rows: root mean square and layer norm.
//!
//! A sum over a row goes into sixteen lanes, element i into lane i % 16 in ascending order, and
//! then through the fixed tree of [`Simd::sum`]; every instruction set follows this definition.

use super::map::{fold, in_place, update};
use crate::float::sqrt;
use crate::isa::Simd;

/// Normalise each row of `n` elements by its root mean square, in place:
/// `x[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i]`.
///
/// `weight` is empty (no factor) or a multiple of `n` long: then row r uses its part r modulo the
/// number of parts, which gives heads one shared weight and groups each their own.
#[inline(always)]
pub(crate) fn rms_norm_in_place<S: Simd>(s: S, x: &mut [f32], n: usize, weight: &[f32], eps: f32) {
    let mut weights = weight.chunks_exact(n.max(1)).cycle();
    for row in x.chunks_exact_mut(n.max(1)) {
        let scale = s.splat(rms_scale(s, row, eps));
        match weights.next() {
            Some(weight) => update!(s, row, weight, |x, w| s.mul(s.mul(x, scale), w)),
            None => in_place!(s, row, |x| s.mul(x, scale)),
        }
    }
}

/// Normalise like [`rms_norm_in_place`], from `x` to `out`, which has its length.
#[inline(always)]
pub(crate) fn rms_norm<S: Simd>(s: S, x: &[f32], n: usize, weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut weights = weight.chunks_exact(n.max(1)).cycle();
    for (x, out) in x.chunks_exact(n.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        let scale = s.splat(rms_scale(s, x, eps));
        match weights.next() {
            Some(weight) => {
                out.copy_from_slice(weight);
                update!(s, out, x, |w, x| s.mul(s.mul(x, scale), w));
            }
            None => update!(s, out, x, |_, x| s.mul(x, scale)),
        }
    }
}

/// Return `1 / sqrt(mean(x^2) + eps)`.
///
/// The sum goes through sixteen lanes; see the module.
#[inline(always)]
fn rms_scale<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let squares = fold!(s, x, 0.0, s.splat(0.0), |sum, x| s.fma(x, x, sum));
    1.0 / sqrt(s.sum(squares) / x.len() as f32 + eps)
}

/// Normalise each row of `n` elements to mean 0 and variance 1, in place, then scale and shift:
/// `x[i] = (x[i] - mean) * (1 / sqrt(variance + eps)) * weight[i] + bias[i]`.
///
/// `weight` and `bias` are empty or a multiple of `n` long, as in [`rms_norm_in_place`]; a missing
/// weight is 1, a missing bias 0.
#[inline(always)]
pub(crate) fn layer_norm_in_place<S: Simd>(
    s: S,
    x: &mut [f32],
    n: usize,
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) {
    let mut weights = weight.chunks_exact(n.max(1)).cycle();
    let mut biases = bias.chunks_exact(n.max(1)).cycle();
    for row in x.chunks_exact_mut(n.max(1)) {
        let (weight, bias) = (weights.next().unwrap_or_default(), biases.next().unwrap_or_default());
        let sum = fold!(s, row, 0.0, s.splat(0.0), |sum, x| s.add(sum, x));
        let mean = s.splat(s.sum(sum) / n as f32);
        in_place!(s, row, |x| s.sub(x, mean));
        let scale = s.splat(rms_scale(s, row, eps));
        in_place!(s, row, |x| s.mul(x, scale));
        update!(s, row, weight, |x, w| s.mul(x, w));
        update!(s, row, bias, |x, b| s.add(x, b));
    }
}
