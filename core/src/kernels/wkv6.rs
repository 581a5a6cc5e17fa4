//! The recurrence of RWKV 6: values in lanes, keys and tokens in order.
//!
//! Shapes: all inputs and the output `[n_tokens, n_head, d_head]`, the state of a head `[d_head
//! keys, d_head values]`. The decay depends on the token and the key; the token's own value is read
//! before it enters the state, with a weight of its own.

use super::map::load;
use super::norm::layer_norm_in_place;
use super::values::{add_times, all, lanes, put, take, times};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// The recurrence of RWKV 6 (Peng et al., 2024, arXiv 2404.05892, equation 18), with the norm of
/// each head behind it.
///
/// For each token and head, `S` is `[keys, values]`, rows of the state by j. `y` is the sum of `v`
/// times the sum of `r k first`, then of `r[j] S[j]` in order; then `S[j] = fma(v, k[j], S[j]
/// exp(-exp(w[j])))`; then the layer norm of `y`. The sum over a head that is not in order goes
/// through sixteen lanes and their fixed tree.
#[derive(Clone, Copy, Debug)]
pub struct Wkv6<'a> {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// The weight of the token's own value (`u` in the paper), `[n_head, d_head]`, like all
    /// weights.
    pub first: &'a [f32],
    /// Factor of the normalised heads.
    pub norm: &'a [f32],
    /// Added to them.
    pub norm_bias: &'a [f32],
    /// Added to the variance of a head.
    pub eps: f32,
}

/// The inputs of a segment of tokens, `[n_tokens, n_head, d_head]` each; all but `r` enter the
/// state.
#[derive(Clone, Copy, Debug)]
pub struct Wkv6Inputs<'a> {
    /// Receptance: the factors by which the state is read.
    pub r: &'a [f32],
    /// Decay, before its exponentials.
    pub w: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
}

impl<'a> Wkv6Inputs<'a> {
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let part = |x: &'a [f32]| &x[range.clone()];
        Wkv6Inputs { r: part(self.r), w: part(self.w), k: part(self.k), v: part(self.v) }
    }
}

impl<'a> Wkv6<'a> {
    /// Return the parameters of head `i` alone.
    pub(crate) fn head(&self, i: usize) -> Self {
        let part = |x: &'a [f32]| &x[i * self.d_head..(i + 1) * self.d_head];
        let [first, norm, norm_bias] = [self.first, self.norm, self.norm_bias].map(part);
        Wkv6 { n_head: 1, first, norm, norm_bias, ..*self }
    }
}

/// Step the states `[heads, keys, values]` of some heads through all tokens of a segment; `out` has
/// the columns of these heads.
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

/// Return the factor of the token's own value.
#[inline(always)]
fn bonus<S: Simd>(s: S, wkv: &Wkv6<'_>, x: &Wkv6Inputs<'_>) -> f32 {
    let mut bonus = s.splat(0.0);
    for ((r, k), u) in x.r.chunks(LANES).zip(x.k.chunks(LANES)).zip(wkv.first.chunks(LANES)) {
        bonus = s.fma(s.mul(load(s, r), load(s, k)), load(s, u), bonus);
    }
    s.sum(bonus)
}

/// Step some columns of a head's state; return the values that `r` reads from them and from the
/// token itself.
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
