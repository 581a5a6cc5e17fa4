//! Functions applied to every element of a slice, or of two.
//!
//! Slices of any length are taken sixteen elements at a time; the ragged end is padded, computed
//! like the rest, and cut. So the bits of an element do not depend on its place.

use crate::isa::{LANES, Simd};
use crate::math;

/// Return `x`, at most sixteen floats, with `pad` behind it.
#[inline(always)]
pub(crate) fn padded(x: &[f32], pad: f32) -> [f32; LANES] {
    let mut padded = [pad; LANES];
    padded.iter_mut().zip(x).for_each(|(p, x)| *p = *x);
    padded
}

/// Return `x`, at most sixteen floats, with zeros behind it.
#[inline(always)]
pub(crate) fn load<S: Simd>(s: S, x: &[f32]) -> S::F {
    match x.first_chunk() {
        Some(x) => s.load(x),
        None => s.load(&padded(x, 0.0)),
    }
}

/// Store as many lanes as `out` holds, at most sixteen.
#[inline(always)]
pub(crate) fn store<S: Simd>(s: S, x: S::F, out: &mut [f32]) {
    match out.first_chunk_mut() {
        Some(out) => s.store(x, out),
        None => {
            let mut lanes = [0.0; LANES];
            s.store(x, &mut lanes);
            out.copy_from_slice(&lanes[..out.len()]);
        }
    }
}

/// `in_place!(s, x, |v| f(v))` applies an expression to all of `x`, sixteen at a time; a ragged
/// tail is padded with zeros.
///
/// A macro and no function that takes a closure: closures do not inherit an instruction set, and
/// those of some size are not inlined, so that each of their operations would be a call.
macro_rules! in_place {
    ($s:ident, $x:expr, |$v:pat_param| $f:expr) => {
        for chunk in $x.chunks_mut($crate::isa::LANES) {
            let $v = $crate::kernels::map::load($s, chunk);
            let y = $f;
            $crate::kernels::map::store($s, y, chunk);
        }
    };
}

/// `update!(s, x, y, |v, w| f(v, w))` does `x[i] = f(x[i], y[i])`, up to the end of the shorter;
/// see [`in_place`].
macro_rules! update {
    ($s:ident, $x:expr, $y:expr, |$v:pat_param, $w:pat_param| $f:expr) => {{
        let n = $x.len().min($y.len());
        let others = $y[..n].chunks($crate::isa::LANES);
        for (chunk, other) in $x[..n].chunks_mut($crate::isa::LANES).zip(others) {
            let ($v, $w) = ($crate::kernels::map::load($s, chunk), $crate::kernels::map::load($s, other));
            let y = $f;
            $crate::kernels::map::store($s, y, chunk);
        }
    }};
}

/// `fold!(s, x, pad, start, |folded, v| f(folded, v))` takes `x` sixteen at a time, the ragged end
/// padded with `pad`; see [`in_place`].
macro_rules! fold {
    ($s:ident, $x:expr, $pad:expr, $start:expr, |$folded:pat_param, $v:pat_param| $f:expr) => {{
        let mut folded = $start;
        for chunk in $x.chunks($crate::isa::LANES) {
            let v = match chunk.first_chunk() {
                Some(chunk) => $s.load(chunk),
                None => $s.load(&$crate::kernels::map::padded(chunk, $pad)),
            };
            let ($folded, $v) = (folded, v);
            folded = $f;
        }
        folded
    }};
}

pub(crate) use {fold, in_place, update};

/// `x[i] = exp(x[i])`.
#[inline(always)]
pub(crate) fn exp_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::exp(s, v));
}

/// `x[i] = tanh(x[i])`.
#[inline(always)]
pub(crate) fn tanh_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::tanh(s, v));
}

/// `x[i] = 1 / (1 + exp(-x[i]))`.
#[inline(always)]
pub(crate) fn sigmoid_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::sigmoid(s, v));
}

/// `x[i] = x[i] / (1 + exp(-x[i]))`.
#[inline(always)]
pub(crate) fn silu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::silu(s, v));
}

/// `x[i] = gelu(x[i])`.
#[inline(always)]
pub(crate) fn gelu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::gelu(s, v));
}

/// `x[i] = max(x[i], 0)`.
#[inline(always)]
pub(crate) fn relu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| s.max(s.splat(0.0), v));
}

/// `x[i] = max(x[i], 0)^2`.
#[inline(always)]
pub(crate) fn squared_relu_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::squared_relu(s, v));
}

/// `x[i] = ln(1 + exp(x[i]))`.
#[inline(always)]
pub(crate) fn softplus_in_place<S: Simd>(s: S, x: &mut [f32]) {
    in_place!(s, x, |v| math::softplus(s, v));
}

/// `x[i] *= factor`.
#[inline(always)]
pub(crate) fn scale_in_place<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    in_place!(s, x, |v| s.mul(v, s.splat(factor)));
}

/// `x[i] = cap * tanh(x[i] / cap)`.
#[inline(always)]
pub(crate) fn soft_cap_in_place<S: Simd>(s: S, x: &mut [f32], cap: f32) {
    let cap = s.splat(cap);
    in_place!(s, x, |v| s.mul(cap, math::tanh(s, s.div(v, cap))));
}

/// `x[i] += y[i]`.
#[inline(always)]
pub(crate) fn add<S: Simd>(s: S, x: &mut [f32], y: &[f32]) {
    update!(s, x, y, |x, y| s.add(x, y));
}

/// `x[i] *= y[i]`.
#[inline(always)]
pub(crate) fn mul<S: Simd>(s: S, x: &mut [f32], y: &[f32]) {
    update!(s, x, y, |x, y| s.mul(x, y));
}

/// `x[i] = fma(y[i], factor, x[i])`.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd>(s: S, x: &mut [f32], y: &[f32], factor: f32) {
    update!(s, x, y, |x, y| s.fma(y, s.splat(factor), x));
}

/// Interpolate: `out[i] = fma(y[i] - x[i], mix, x[i])`, in rows of the length of `weight`.
///
/// `mix` is `weight[i]`, or `by[i]` where `weight` is empty, or else the sum of both unless `by` is
/// empty. The token shift of RWKV.
#[inline(always)]
pub(crate) fn lerp<S: Simd>(s: S, x: &[f32], y: &[f32], weight: &[f32], by: &[f32], out: &mut [f32]) {
    let width = if weight.is_empty() { out.len() } else { weight.len() };
    for start in (0..out.len()).step_by(width.max(1)) {
        for col in (0..width).step_by(LANES) {
            let (first, end) = (start + col, start + width.min(col + LANES));
            let (x, y) = (load(s, &x[first..end]), load(s, &y[first..end]));
            let mix = match (weight.is_empty(), by.is_empty()) {
                (true, _) => load(s, &by[first..end]),
                (_, true) => load(s, &weight[col..end - start]),
                _ => s.add(load(s, &weight[col..end - start]), load(s, &by[first..end])),
            };
            store(s, s.fma(s.sub(y, x), mix, x), &mut out[first..end]);
        }
    }
}
