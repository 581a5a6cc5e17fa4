//! Kimi delta attention: values in lanes, keys and tokens in order.
//!
//! The gated delta rule ([`super::delta`]) with a decay for each key of a head. As there, a head's
//! state is read twice for each token: once for the value held under the key, once to update it and
//! to read it with the query.

use super::map::{fold, load};
use super::values::{add_times, all, lanes, put, take, times};
use crate::float::sqrt;
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// Kimi delta attention (Kimi team, 2025, arXiv 2510.26692, equation 1): a delta rule whose state
/// forgets each key at a rate of its own.
///
/// For each token and head, `S` `[keys, values]`, rows of the state by j:
///
/// - `decay = exp(softplus(alpha + dt_bias) a)` for each key, `beta = sigmoid(beta)`, q and k
///   divided by their lengths, which count as at least `eps`, q also by the square root of `d_k`;
/// - `missing = beta (v - held)` where `held = sum over j of (k[j] decay[j]) S[j]`, in order;
/// - `S[j] = fma(missing, k[j], S[j] decay[j])`, and `y = sum over j of q[j] S[j]`, in order.
///
/// Sums over a head that are not in order go through sixteen lanes and their fixed tree.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::pool::Inline;
/// use backstitch_core::scan::{Kda, KdaInputs};
///
/// let kda = Kda { n_head: 1, d_k: 1, d_v: 1, dt_bias: &[0.0], a: &[-1.0], eps: 1e-6 };
/// // Nothing is forgotten (alpha), all that is missing is learned (beta): the value 5 takes the
/// // place of the 2 under the same key, and the query reads it.
/// let (q, k, v) = (&[1.0][..], &[1.0][..], &[5.0][..]);
/// let x = KdaInputs { q, k, v, beta: &[200.0], alpha: &[-200.0] };
/// let (mut state, mut out) = ([2.0], [0.0]);
/// kda.run(KernelSet::scalar(), &Inline, &x, &mut state, &mut out)?;
/// assert_eq!((state, out), ([5.0], [5.0]));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kda<'a> {
    /// Heads.
    pub n_head: usize,
    /// Keys of a head.
    pub d_k: usize,
    /// Values of a head.
    pub d_v: usize,
    /// Bias of `alpha`, `[n_head, d_k]`.
    pub dt_bias: &'a [f32],
    /// Decay, negative: `[n_head]`.
    pub a: &'a [f32],
    /// The least length of a query or key.
    pub eps: f32,
}

/// The inputs of a segment of tokens; all but `q` enter the state.
#[derive(Clone, Copy, Debug)]
pub struct KdaInputs<'a> {
    /// Queries, `[n_tokens, n_head, d_k]`.
    pub q: &'a [f32],
    /// Keys, `[n_tokens, n_head, d_k]`.
    pub k: &'a [f32],
    /// Values, `[n_tokens, n_head, d_v]`.
    pub v: &'a [f32],
    /// The part that is learned, before its sigmoid: `[n_tokens, n_head]`.
    pub beta: &'a [f32],
    /// The part of each key that is forgotten, before bias and softplus: `[n_tokens, n_head, d_k]`.
    pub alpha: &'a [f32],
}

/// Step the states `[heads, keys, values]` of some heads through all tokens of a segment; `out` has
/// the columns of these heads.
#[inline(always)]
pub(crate) fn kda<S: Simd>(
    s: S,
    kda: &Kda<'_>,
    heads: Range<usize>,
    x: &KdaInputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d_k, d_v) = (kda.d_k, kda.d_v);
    for t in 0..x.beta.len() / kda.n_head.max(1) {
        let outs = out.row(t).chunks_exact_mut(d_v.max(1));
        let heads = heads.clone().zip(states.chunks_exact_mut((d_k * d_v).max(1)));
        for ((head, state), out) in heads.zip(outs) {
            let token = Token::new(s, kda, head, t, x);
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
    alpha: &'a [f32],
    dt_bias: &'a [f32],
    a: f32,
    /// The factor that makes of `q` a vector of length 1, over the square root of `d_k`.
    q_scale: f32,
    /// The factor that makes of `k` a vector of length 1.
    k_scale: f32,
    beta: f32,
}

impl<'a> Token<'a> {
    #[inline(always)]
    fn new<S: Simd>(s: S, kda: &Kda<'a>, head: usize, t: usize, x: &KdaInputs<'a>) -> Self {
        let (d_k, d_v, gate) = (kda.d_k, kda.d_v, t * kda.n_head + head);
        let keys = |x: &'a [f32], head: usize| &x[head * d_k..(head + 1) * d_k];
        let (q, k) = (keys(x.q, gate), keys(x.k, gate));
        Token {
            q,
            k,
            v: &x.v[gate * d_v..(gate + 1) * d_v],
            alpha: keys(x.alpha, gate),
            dt_bias: keys(kda.dt_bias, head),
            a: kda.a[head],
            q_scale: unit(s, q, kda.eps) / sqrt(d_k as f32),
            k_scale: unit(s, k, kda.eps),
            beta: lanes(s, math::sigmoid(s, s.splat(x.beta[gate])))[0],
        }
    }

    /// Return the decay and the key from key `first` on.
    #[inline(always)]
    fn keys<S: Simd>(&self, s: S, first: usize) -> (S::F, S::F) {
        let last = self.k.len().min(first + LANES);
        let at = |x: &[f32]| load(s, &x[first..last]);
        let rate = math::softplus(s, s.add(at(self.alpha), at(self.dt_bias)));
        (math::exp(s, s.mul(rate, s.splat(self.a))), s.mul(at(self.k), s.splat(self.k_scale)))
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
        // The value that the state holds under this key, negative.
        let mut missing = [s.splat(0.0); N];
        for (i, rows) in state.chunks(LANES * d_v).enumerate() {
            let (decay, k) = self.keys(s, i * LANES);
            let k = lanes(s, s.mul(k, decay));
            for (row, k) in rows.chunks_exact(d_v).zip(k) {
                add_times(s, &mut missing, &take(s, &row[cols.clone()]), -k);
            }
        }
        add_times(s, &mut missing, &take(s, &self.v[cols.clone()]), 1.0);
        times(s, &mut missing, self.beta);
        let mut y = [s.splat(0.0); N];
        for ((i, rows), q) in state.chunks_mut(LANES * d_v).enumerate().zip(self.q.chunks(LANES)) {
            let (decay, k) = self.keys(s, i * LANES);
            let (decay, k) = (lanes(s, decay), lanes(s, k));
            let q = lanes(s, s.mul(load(s, q), s.splat(self.q_scale)));
            for (((row, decay), k), q) in rows.chunks_exact_mut(d_v).zip(decay).zip(k).zip(q) {
                let row = &mut row[cols.clone()];
                let mut next = take(s, row);
                times(s, &mut next, decay);
                add_times(s, &mut next, &missing, k);
                put(s, next, row);
                add_times(s, &mut y, &next, q);
            }
        }
        y
    }
}

/// Return one over the length of `x`, which counts as at least `least`.
#[inline(always)]
fn unit<S: Simd>(s: S, x: &[f32], least: f32) -> f32 {
    let squares = fold!(s, x, 0.0, s.splat(0.0), |sum, x| s.fma(x, x, sum));
    1.0 / sqrt(s.sum(squares)).max(least)
}
