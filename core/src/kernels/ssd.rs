//! The recurrence of Mamba-2: state columns in lanes, tokens in order.

use super::map::{load, store};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::math::scalar::fma;
use crate::pool::Band;
use crate::scan::Ssd;
use core::ops::Range;

/// Steps the states `[heads, d_head, d_state]` of some heads through all tokens of a run.
///
/// `xbc`: `[n_tokens, x | B | C]`, `dt`: `[n_tokens, n_head]`; `out`: these heads' columns.
#[inline(always)]
pub(crate) fn ssd<S: Simd>(
    s: S,
    ssd: &Ssd<'_>,
    heads: Range<usize>,
    xbc: &[f32],
    dt: &[f32],
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d_head, d_state) = (ssd.d_head, ssd.d_state);
    let (n_x, n_b) = (ssd.n_head * d_head, ssd.n_group * d_state);
    let rows = xbc.chunks_exact(ssd.width().max(1)).zip(dt.chunks_exact(ssd.n_head.max(1)));
    for (t, (row, dt)) in rows.enumerate() {
        let (x, bc) = row.split_at(n_x);
        let (b, c) = bc.split_at(n_b);
        let out = out.row(t);
        for (i, head) in heads.clone().enumerate() {
            let group = head / (ssd.n_head / ssd.n_group.max(1)).max(1) * d_state;
            let (b, c) = (&b[group..group + d_state], &c[group..group + d_state]);
            let dt = first_lane(s, math::softplus(s, s.splat(dt[head] + ssd.dt_bias[head])));
            let decay = first_lane(s, math::exp(s, s.splat(dt * ssd.a[head])));
            let x = &x[head * d_head..(head + 1) * d_head];
            let states = &mut states[i * d_head * d_state..(i + 1) * d_head * d_state];
            let out = &mut out[i * d_head..(i + 1) * d_head];
            for ((&x, state), out) in x.iter().zip(states.chunks_exact_mut(d_state.max(1))).zip(out) {
                let y = step(s, state, b, c, decay, x * dt);
                *out = fma(ssd.d[head], x, y);
            }
        }
    }
}

/// `state = state * decay + B * x`, and the sum of `state * C`.
#[inline(always)]
fn step<S: Simd>(s: S, state: &mut [f32], b: &[f32], c: &[f32], decay: f32, x: f32) -> f32 {
    let (decay, x, mut sum) = (s.splat(decay), s.splat(x), s.splat(0.0));
    for ((state, b), c) in state.chunks_mut(LANES).zip(b.chunks(LANES)).zip(c.chunks(LANES)) {
        let next = s.fma(load(s, b), x, s.mul(load(s, state), decay));
        store(s, next, state);
        sum = s.fma(next, load(s, c), sum);
    }
    s.sum(sum)
}

#[inline(always)]
fn first_lane<S: Simd>(s: S, x: S::F) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(x, &mut lanes);
    lanes[0]
}
