//! The recurrence of RWKV 7: values in lanes, keys and tokens in order.

use super::map::{add_scaled, load};
use super::norm::layer_norm_in_place;
use super::values::{add_times, all, lanes, put, take, times};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::math::scalar::sqrt;
use crate::pool::Band;
use crate::scan::{Wkv7, Wkv7Inputs};
use core::ops::Range;

/// Steps the states `[heads, keys, values]` of some heads through all tokens of a run; `out`: these heads' columns.
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
            layer_norm_in_place(s, out, d, wkv.norm, wkv.norm_bias, wkv.eps);
            add_scaled(s, out, x.v, bonus);
        }
    }
}

/// What sixteen keys of a head do to its state.
struct Keys {
    decay: [f32; LANES],
    /// The key that is stored.
    k: [f32; LANES],
    /// The key that is removed, of length 1.
    removed: [f32; LANES],
    /// The same times how much of it is removed.
    rate: [f32; LANES],
    r: [f32; LANES],
}

/// The stored key from `first` on.
#[inline(always)]
fn stored<S: Simd>(s: S, wkv: &Wkv7<'_>, x: &Wkv7Inputs<'_>, first: usize) -> S::F {
    let at = |x: &[f32]| load(s, &x[first..x.len().min(first + LANES)]);
    let less = s.sub(math::sigmoid(s, at(x.a)), s.splat(1.0));
    s.fma(s.mul(at(x.k), at(wkv.k_a)), less, at(x.k))
}

/// One over the length of the removed key, and how much of the token's own value is added.
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

/// Steps some columns of a head's state; returns what `r` reads from them.
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
    // What the state holds under the removed key, negative.
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
