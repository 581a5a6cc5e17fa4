//! The gated delta rule: values in lanes, keys and tokens in order.
//!
//! A head's state is read twice for each token: once for the value held under the key, once to
//! update it and to read it with the query. Both passes go along the keys with some vectors of
//! values in registers. Source: equation 10 of arXiv 2412.06464, in the recurrent form.

use super::map::{fold, load};
use super::values::{add_times, all, lanes, put, take, times};
use crate::float::sqrt;
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// The gated delta rule (Yang, Kautz and Hatamizadeh, 2024, arXiv 2412.06464, equation 10): the
/// recurrence of Qwen3-Next and Qwen3.5.
///
/// A state maps keys to values. Each token makes it forget a little, looks up the value that it
/// holds under the token's key, and stores a part of the difference to the token's value.
///
/// For each token and head, `S` `[keys, values]`, rows of the state by j:
///
/// - `decay = exp(softplus(alpha + dt_bias) a)`, `beta = sigmoid(beta)`, q and k scaled by 1 over
///   the square root of their squares' sum plus `eps`, q also by 1 over that of `d_k`;
/// - `missing = beta fma(held, -decay, v)` where `held = sum over j of k[j] S[j]`, in order;
/// - `S[j] = fma(missing, k[j], S[j] decay)`, and `y = sum over j of q[j] S[j]`, in order.
///
/// Sums over a head that are not in order go through sixteen lanes and their fixed tree.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::pool::Inline;
/// use backstitch_core::scan::{Delta, DeltaInputs, Sharing};
///
/// let delta = Delta {
///     n_head: 1,
///     n_head_k: 1,
///     sharing: Sharing::Neighbours,
///     d_k: 1,
///     d_v: 1,
///     dt_bias: &[0.0],
///     a: &[-1.0],
///     eps: 0.0,
/// };
/// // Nothing is forgotten (alpha), all that is missing is learned (beta): the value 5 takes the
/// // place of the 2 under the same key, and the query reads it.
/// let x = DeltaInputs { qkv: &[1.0, 1.0, 5.0], beta: &[200.0], alpha: &[-200.0] };
/// let (mut state, mut out) = ([2.0], [0.0]);
/// delta.run(KernelSet::scalar(), &Inline, &x, &mut state, &mut out)?;
/// assert_eq!((state, out), ([5.0], [5.0]));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// Heads of values, gates and states.
    pub n_head: usize,
    /// Heads of queries and keys; divides `n_head`.
    pub n_head_k: usize,
    /// The heads of keys that a head uses.
    pub sharing: Sharing,
    /// Keys of a head.
    pub d_k: usize,
    /// Values of a head.
    pub d_v: usize,
    /// Bias of `alpha`, `[n_head]`.
    pub dt_bias: &'a [f32],
    /// Decay, negative: `[n_head]`.
    pub a: &'a [f32],
    /// Added to the square of a query's or key's length.
    pub eps: f32,
}

/// The assignment of key heads to value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Neighbours share: the first `n_head / n_head_k` heads use the first.
    Neighbours,
    /// Heads that are `n_head_k` apart share.
    Strided,
}

/// The inputs of a segment of tokens.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// Queries, keys and values side by side, `[n_tokens, width]`.
    pub qkv: &'a [f32],
    /// The part that is learned, before its sigmoid: `[n_tokens, n_head]`.
    pub beta: &'a [f32],
    /// The part that is forgotten, before bias and softplus: `[n_tokens, n_head]`.
    pub alpha: &'a [f32],
}

impl Delta<'_> {
    /// Return the columns of an input row: `n_head_k` queries and as many keys of `d_k`, then
    /// `n_head` values of `d_v`.
    pub fn width(&self) -> usize {
        2 * self.n_head_k * self.d_k + self.n_head * self.d_v
    }

    /// Return the head of keys that `head` uses.
    pub(crate) fn key_of(&self, head: usize) -> usize {
        match self.sharing {
            Sharing::Neighbours => head / (self.n_head / self.n_head_k.max(1)).max(1),
            Sharing::Strided => head % self.n_head_k.max(1),
        }
    }
}

/// Step the states `[heads, keys, values]` of some heads through all tokens of a segment; `out` has
/// the columns of these heads.
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

/// One token's effect on one head.
struct Token<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// The factor that makes of `q` a vector of length 1, over the square root of `d_k`.
    q_scale: f32,
    /// The factor that makes of `k` a vector of length 1.
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

    /// Step some columns of the head's state; return the values that `q` reads from them.
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

/// Return one over the length of `x`.
#[inline(always)]
fn unit<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let squares = fold!(s, x, 0.0, s.splat(0.0), |sum, x| s.fma(x, x, sum));
    1.0 / sqrt(s.sum(squares) + eps)
}
