//! The gated delta rule: values in lanes, keys and tokens in order.

use super::map::{fold, load};
use super::values::{add_times, all, lanes, put, take, times};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::math::scalar::sqrt;
use crate::pool::Band;
use crate::scan::{Delta, DeltaInputs};
use core::ops::Range;

/// Steps the states `[heads, keys, values]` of some heads through all tokens of a run; `out`: these heads' columns.
#[inline(always)]
pub(crate) fn delta<S: Simd>(
    s: S,
    delta: &Delta<'_>,
    heads: Range<usize>,
    x: &DeltaInputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d_k, d_v) = (delta.d_k, delta.d_v);
    for t in 0..x.beta.len() / delta.n_head.max(1) {
        let outs = out.row(t).chunks_exact_mut(d_v.max(1));
        let heads = heads.clone().zip(states.chunks_exact_mut((d_k * d_v).max(1)));
        for ((head, state), out) in heads.zip(outs) {
            let token = Token::new(s, delta, head, t, x);
            all!(d_v, |N, cols| {
                let y = token.step::<S, N>(s, state, d_v, cols.clone());
                put(s, y, &mut out[cols]);
            });
        }
    }
}

/// What a token does to one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// What makes of `q` a vector of length 1, over the square root of `d_k`.
    q_scale: f32,
    /// What makes of `k` a vector of length 1.
    k_scale: f32,
    decay: f32,
    beta: f32,
}

impl<'a> Token<'a> {
    #[inline(always)]
    fn new<S: Simd>(s: S, delta: &Delta<'_>, head: usize, t: usize, x: &DeltaInputs<'a>) -> Self {
        let (d_k, d_v) = (delta.d_k, delta.d_v);
        let n_k = delta.n_head_k * d_k;
        let (key, value, gate) = (delta.key_of(head) * d_k, head * d_v, t * delta.n_head + head);
        let (queries, kv) = x.qkv[t * delta.width()..(t + 1) * delta.width()].split_at(n_k);
        let (keys, values) = kv.split_at(n_k);
        let (q, k, v) = (&queries[key..key + d_k], &keys[key..key + d_k], &values[value..value + d_v]);
        let rate = math::softplus(s, s.splat(x.alpha[gate] + delta.dt_bias[head]));
        Token {
            q,
            k,
            v,
            q_scale: unit(s, q, delta.eps) / sqrt(d_k as f32),
            k_scale: unit(s, k, delta.eps),
            decay: lanes(s, math::exp(s, s.mul(rate, s.splat(delta.a[head]))))[0],
            beta: lanes(s, math::sigmoid(s, s.splat(x.beta[gate])))[0],
        }
    }

    /// Steps some columns of the head's state; returns what `q` reads from them.
    #[inline(always)]
    fn step<S: Simd, const N: usize>(
        &self,
        s: S,
        state: &mut [f32],
        d_v: usize,
        cols: Range<usize>,
    ) -> [S::F; N] {
        let mut held = [s.splat(0.0); N];
        for (rows, k) in state.chunks(LANES * d_v).zip(self.k.chunks(LANES)) {
            let k = lanes(s, s.mul(load(s, k), s.splat(self.k_scale)));
            for (row, k) in rows.chunks_exact(d_v).zip(k) {
                add_times(s, &mut held, &take(s, &row[cols.clone()]), k);
            }
        }
        // The value that is missing under this key.
        let mut missing = take(s, &self.v[cols.clone()]);
        add_times(s, &mut missing, &held, -self.decay);
        times(s, &mut missing, self.beta);
        let mut y = [s.splat(0.0); N];
        let keys = self.k.chunks(LANES).zip(self.q.chunks(LANES));
        for (rows, (k, q)) in state.chunks_mut(LANES * d_v).zip(keys) {
            let k = lanes(s, s.mul(load(s, k), s.splat(self.k_scale)));
            let q = lanes(s, s.mul(load(s, q), s.splat(self.q_scale)));
            for ((row, k), q) in rows.chunks_exact_mut(d_v).zip(k).zip(q) {
                let row = &mut row[cols.clone()];
                let mut next = take(s, row);
                times(s, &mut next, self.decay);
                add_times(s, &mut next, &missing, k);
                put(s, next, row);
                add_times(s, &mut y, &next, q);
            }
        }
        y
    }
}

/// One over the length of `x`.
#[inline(always)]
fn unit<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let squares = fold!(s, x, 0.0, s.splat(0.0), |sum, x| s.fma(x, x, sum));
    1.0 / sqrt(s.sum(squares) + eps)
}
