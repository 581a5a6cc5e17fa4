//! The recurrence of RWKV 7: values in lanes, keys and tokens in order.
//!
//! Shapes: all inputs and the output `[n_tokens, n_head, d_head]`, the state of a head `[d_head
//! keys, d_head values]`. Beside the decay, each token removes a part of the value that the state
//! holds under one key and stores the token's value under another: a delta rule with a learned key
//! of removal.

use super::map::{add_scaled, load};
use super::norm::layer_norm_in_place;
use super::values::{add_times, all, lanes, put, take, times};
use crate::float::sqrt;
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// The recurrence of RWKV 7 (Peng et al., 2025, arXiv 2503.14456, section 4), with the norm of each
/// head behind it.
///
/// For each token and head, `S` `[keys, values]`, rows of the state by j:
///
/// - `decay = exp(-0.606531 sigmoid(w))`, `a = sigmoid(a)`, `removed = k k_k / |k k_k|`, `k = fma(k
///   k_a, a - 1, k)`;
/// - `held = sum over j of -removed[j] S[j]`, in order;
/// - `S[j] = fma(held, removed[j] a[j], fma(v, k[j], S[j] decay[j]))`;
/// - `y = sum over j of r[j] S[j]`, in order; then, where there is one, its layer norm; then plus
///   `v` times the sum of `k r r_k`.
///
/// Sums over a head that are not in order go through sixteen lanes and their fixed tree.
#[derive(Clone, Copy, Debug)]
pub struct Wkv7<'a> {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// Weighs the key that is removed, `[n_head, d_head]`, as all weights.
    pub k_k: &'a [f32],
    /// The change of the stored key by the rate of learning.
    pub k_a: &'a [f32],
    /// The weight of the token's own value.
    pub r_k: &'a [f32],
    /// Factor of the normalised heads; empty, like `norm_bias`, if heads are not normalised.
    pub norm: &'a [f32],
    /// Added to them.
    pub norm_bias: &'a [f32],
    /// Added to the variance of a head.
    pub eps: f32,
}

/// The inputs of a segment of tokens, `[n_tokens, n_head, d_head]` each; all but `r` enter the
/// state.
#[derive(Clone, Copy, Debug)]
pub struct Wkv7Inputs<'a> {
    /// Receptance: the factors by which the state is read.
    pub r: &'a [f32],
    /// Decay, before its sigmoid.
    pub w: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
    /// Rate of learning, before its sigmoid.
    pub a: &'a [f32],
}

impl<'a> Wkv7Inputs<'a> {
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let part = |x: &'a [f32]| &x[range.clone()];
        Wkv7Inputs { r: part(self.r), w: part(self.w), k: part(self.k), v: part(self.v), a: part(self.a) }
    }
}

impl<'a> Wkv7<'a> {
    /// Return the parameters of head `i` alone.
    pub(crate) fn head(&self, i: usize) -> Self {
        let part = |x: &'a [f32]| match x {
            [] => x,
            x => &x[i * self.d_head..(i + 1) * self.d_head],
        };
        Wkv7 {
            n_head: 1,
            k_k: part(self.k_k),
            k_a: part(self.k_a),
            r_k: part(self.r_k),
            norm: part(self.norm),
            norm_bias: part(self.norm_bias),
            ..*self
        }
    }
}

/// Step the states `[heads, keys, values]` of some heads through all tokens of a segment; `out` has
/// the columns of these heads.
#[inline(always)]
pub(crate) fn wkv7<S: Simd>(
    s: S,
    wkv: &Wkv7<'_>,
    heads: Range<usize>,
    x: &Wkv7Inputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d, width) = (wkv.d_head, wkv.n_head * wkv.d_head);
    for (t, row) in (0..x.k.len()).step_by(width.max(1)).enumerate() {
        let outs = out.row(t).chunks_exact_mut(d.max(1));
        let heads = heads.clone().zip(states.chunks_exact_mut((d * d).max(1)));
        for ((head, state), out) in heads.zip(outs) {
            let (wkv, x) = (wkv.head(head), x.part(row + head * d..row + (head + 1) * d));
            let (scale, bonus) = sums(s, &wkv, &x);
            all!(d, |N, cols| {
                let y = step::<S, N>(s, &wkv, &x, scale, state, cols.clone());
                put(s, y, &mut out[cols]);
            });
            if !wkv.norm.is_empty() {
                layer_norm_in_place(s, out, d, wkv.norm, wkv.norm_bias, wkv.eps);
            }
            add_scaled(s, out, x.v, bonus);
        }
    }
}

/// The effect of sixteen keys of a head on its state.
struct Keys {
    decay: [f32; LANES],
    /// The key that is stored.
    k: [f32; LANES],
    /// The key that is removed, of length 1.
    removed: [f32; LANES],
    /// The removed key times the part of it that is removed.
    rate: [f32; LANES],
    r: [f32; LANES],
}

/// Return the stored key from `first` on.
#[inline(always)]
fn stored<S: Simd>(s: S, wkv: &Wkv7<'_>, x: &Wkv7Inputs<'_>, first: usize) -> S::F {
    let at = |x: &[f32]| load(s, &x[first..x.len().min(first + LANES)]);
    let less = s.sub(math::sigmoid(s, at(x.a)), s.splat(1.0));
    s.fma(s.mul(at(x.k), at(wkv.k_a)), less, at(x.k))
}

/// Return one over the length of the removed key, and the factor of the token's own value.
#[inline(always)]
fn sums<S: Simd>(s: S, wkv: &Wkv7<'_>, x: &Wkv7Inputs<'_>) -> (f32, f32) {
    let (mut squares, mut bonus) = (s.splat(0.0), s.splat(0.0));
    for first in (0..x.k.len()).step_by(LANES) {
        let at = |x: &[f32]| load(s, &x[first..x.len().min(first + LANES)]);
        let removed = s.mul(at(x.k), at(wkv.k_k));
        squares = s.fma(removed, removed, squares);
        bonus = s.fma(s.mul(stored(s, wkv, x, first), at(x.r)), at(wkv.r_k), bonus);
    }
    (1.0 / sqrt(s.sum(squares)).max(1e-12), s.sum(bonus))
}

#[inline(always)]
fn keys<S: Simd>(s: S, wkv: &Wkv7<'_>, x: &Wkv7Inputs<'_>, scale: f32, first: usize) -> Keys {
    let at = |x: &[f32]| load(s, &x[first..x.len().min(first + LANES)]);
    let removed = s.mul(s.mul(at(x.k), at(wkv.k_k)), s.splat(scale));
    // e^(-1/2), which keeps the decay above e^-0.61.
    let decay = s.mul(math::sigmoid(s, at(x.w)), s.splat(-0.606_531));
    Keys {
        decay: lanes(s, math::exp(s, decay)),
        k: lanes(s, stored(s, wkv, x, first)),
        removed: lanes(s, removed),
        rate: lanes(s, s.mul(removed, math::sigmoid(s, at(x.a)))),
        r: lanes(s, at(x.r)),
    }
}

/// Step some columns of a head's state; return the values that `r` reads from them.
#[inline(always)]
fn step<S: Simd, const N: usize>(
    s: S,
    wkv: &Wkv7<'_>,
    x: &Wkv7Inputs<'_>,
    scale: f32,
    state: &mut [f32],
    cols: Range<usize>,
) -> [S::F; N] {
    let d = wkv.d_head;
    // The values that the state holds under the removed key, negative.
    let mut held = [s.splat(0.0); N];
    for (i, rows) in state.chunks(LANES * d).enumerate() {
        let keys = keys(s, wkv, x, scale, i * LANES);
        for (row, removed) in rows.chunks_exact(d).zip(keys.removed) {
            add_times(s, &mut held, &take(s, &row[cols.clone()]), -removed);
        }
    }
    let v: [S::F; N] = take(s, &x.v[cols.clone()]);
    let mut y = [s.splat(0.0); N];
    for (i, rows) in state.chunks_mut(LANES * d).enumerate() {
        let keys = keys(s, wkv, x, scale, i * LANES);
        for (j, row) in rows.chunks_exact_mut(d).enumerate() {
            let row = &mut row[cols.clone()];
            let mut next = take(s, row);
            times(s, &mut next, keys.decay[j]);
            add_times(s, &mut next, &v, keys.k[j]);
            add_times(s, &mut next, &held, keys.rate[j]);
            put(s, next, row);
            add_times(s, &mut y, &next, keys.r[j]);
        }
    }
    y
}
