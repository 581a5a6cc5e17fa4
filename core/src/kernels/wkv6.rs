//! The recurrence of RWKV 6: values in lanes, keys and tokens in order.

use super::map::load;
use super::norm::layer_norm_in_place;
use super::values::{add_times, all, lanes, put, take, times};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use crate::scan::{Wkv6, Wkv6Inputs};
use core::ops::Range;

/// Steps the states `[heads, keys, values]` of some heads through all tokens of a run; `out`: these heads' columns.
#[inline(always)]
pub(crate) fn wkv6<S: Simd>(
    s: S,
    wkv: &Wkv6<'_>,
    heads: Range<usize>,
    x: &Wkv6Inputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d, width) = (wkv.d_head, wkv.n_head * wkv.d_head);
    for (t, row) in (0..x.k.len()).step_by(width.max(1)).enumerate() {
        let outs = out.row(t).chunks_exact_mut(d.max(1));
        let heads = heads.clone().zip(states.chunks_exact_mut((d * d).max(1)));
        for ((head, state), out) in heads.zip(outs) {
            let (wkv, x) = (wkv.head(head), x.part(row + head * d..row + (head + 1) * d));
            let bonus = bonus(s, &wkv, &x);
            all!(d, |N, cols| {
                let y = step::<S, N>(s, &x, bonus, state, cols.clone());
                put(s, y, &mut out[cols]);
            });
            layer_norm_in_place(s, out, d, wkv.norm, wkv.norm_bias, wkv.eps);
        }
    }
}

/// How much of the token's own value is read.
#[inline(always)]
fn bonus<S: Simd>(s: S, wkv: &Wkv6<'_>, x: &Wkv6Inputs<'_>) -> f32 {
    let mut bonus = s.splat(0.0);
    for ((r, k), u) in x.r.chunks(LANES).zip(x.k.chunks(LANES)).zip(wkv.first.chunks(LANES)) {
        bonus = s.fma(s.mul(load(s, r), load(s, k)), load(s, u), bonus);
    }
    s.sum(bonus)
}

/// Steps some columns of a head's state; returns what `r` reads from them and from the token itself.
#[inline(always)]
fn step<S: Simd, const N: usize>(
    s: S,
    x: &Wkv6Inputs<'_>,
    bonus: f32,
    state: &mut [f32],
    cols: Range<usize>,
) -> [S::F; N] {
    let d = x.k.len();
    let v: [S::F; N] = take(s, &x.v[cols.clone()]);
    let mut y = v;
    times(s, &mut y, bonus);
    let keys = x.w.chunks(LANES).zip(x.k.chunks(LANES)).zip(x.r.chunks(LANES));
    for (rows, ((w, k), r)) in state.chunks_mut(LANES * d).zip(keys) {
        let decay = lanes(s, math::exp(s, s.sub(s.splat(0.0), math::exp(s, load(s, w)))));
        for (((row, decay), &k), &r) in rows.chunks_exact_mut(d).zip(decay).zip(k).zip(r) {
            let row = &mut row[cols.clone()];
            let mut next = take(s, row);
            add_times(s, &mut y, &next, r);
            times(s, &mut next, decay);
            add_times(s, &mut next, &v, k);
            put(s, next, row);
        }
    }
    y
}
