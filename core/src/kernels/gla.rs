//! Gated linear attention: values in lanes, keys and tokens in order.
//!
//! Shapes: receptance, decay and output `[n_tokens, n_head, d_head]`, keys and values
//! `[n_tokens, n_head_kv, d_head]`, the state of a head `[d_head keys, d_head values]`. The decay
//! depends on the token and the key; what it leaves of the state is what the key does not learn.

use super::map::load;
use super::values::{add_times, all, lanes, put, take, times};
use crate::float::sqrt;
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// Gated linear attention (Yang et al., 2023, arXiv 2312.06635) with the decay of RWKV 6, as
/// models have it whose attention was converted to RWKV.
///
/// For each token and head, `S` is `[keys, values]`, rows of the state by j, with `decay =
/// exp(-exp(w))` and `learned = fma(k, -decay, k)`: `S[j] = fma(v, learned[j], S[j] decay[j])`,
/// and `y` is the sum over j of `S[j]` times `r[j]` over the square root of `d_head`, in order.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::pool::Inline;
/// use backstitch_core::scan::{Gla, GlaInputs};
///
/// let gla = Gla { n_head: 1, n_head_kv: 1, d_head: 1 };
/// // All is forgotten, so all of the key is learned: the value 5 takes the place of the 2.
/// let x = GlaInputs { r: &[1.0], w: &[20.0], k: &[1.0], v: &[5.0] };
/// let (mut state, mut out) = ([2.0], [0.0]);
/// gla.run(KernelSet::scalar(), &Inline, &x, &mut state, &mut out)?;
/// assert_eq!((state, out), ([5.0], [5.0]));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gla {
    /// Heads of receptance, decay and states.
    pub n_head: usize,
    /// Heads of keys and values; divides `n_head`, and neighbours share one.
    pub n_head_kv: usize,
    /// Keys and values of a head.
    pub d_head: usize,
}

/// The inputs of a segment of tokens; all but `r` enter the state.
#[derive(Clone, Copy, Debug)]
pub struct GlaInputs<'a> {
    /// Receptance, `[n_tokens, n_head, d_head]`: the factors by which the state is read.
    pub r: &'a [f32],
    /// Decay before its exponentials, `[n_tokens, n_head, d_head]`.
    pub w: &'a [f32],
    /// Keys, `[n_tokens, n_head_kv, d_head]`.
    pub k: &'a [f32],
    /// Values, `[n_tokens, n_head_kv, d_head]`.
    pub v: &'a [f32],
}

impl<'a> GlaInputs<'a> {
    /// Return the inputs of one token and head.
    fn head(&self, gla: &Gla, t: usize, head: usize) -> Self {
        let d = gla.d_head;
        let kv = head / (gla.n_head / gla.n_head_kv.max(1)).max(1);
        let (own, shared) = ((t * gla.n_head + head) * d, (t * gla.n_head_kv + kv) * d);
        let part = |x: &'a [f32], first: usize| &x[first..first + d];
        GlaInputs {
            r: part(self.r, own),
            w: part(self.w, own),
            k: part(self.k, shared),
            v: part(self.v, shared),
        }
    }
}

/// Step the states `[heads, keys, values]` of some heads through all tokens of a segment; `out` has
/// the columns of these heads.
#[inline(always)]
pub(crate) fn gla<S: Simd>(
    s: S,
    gla: &Gla,
    heads: Range<usize>,
    x: &GlaInputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let d = gla.d_head;
    for t in 0..x.r.len() / (gla.n_head * d).max(1) {
        let outs = out.row(t).chunks_exact_mut(d.max(1));
        let heads = heads.clone().zip(states.chunks_exact_mut((d * d).max(1)));
        for ((head, state), out) in heads.zip(outs) {
            let x = x.head(gla, t, head);
            all!(d, |N, cols| {
                let y = step::<S, N>(s, &x, state, cols.clone());
                put(s, y, &mut out[cols]);
            });
        }
    }
}

/// Step some columns of a head's state; return the values that `r` reads from them.
#[inline(always)]
fn step<S: Simd, const N: usize>(
    s: S,
    x: &GlaInputs<'_>,
    state: &mut [f32],
    cols: Range<usize>,
) -> [S::F; N] {
    let d = x.k.len();
    let scale = s.splat(1.0 / sqrt(d as f32));
    let v: [S::F; N] = take(s, &x.v[cols.clone()]);
    let mut y = [s.splat(0.0); N];
    let keys = x.w.chunks(LANES).zip(x.k.chunks(LANES)).zip(x.r.chunks(LANES));
    for (rows, ((w, k), r)) in state.chunks_mut(LANES * d).zip(keys) {
        let less = s.sub(s.splat(0.0), math::exp(s, s.sub(s.splat(0.0), math::exp(s, load(s, w)))));
        let learned = lanes(s, s.fma(load(s, k), less, load(s, k)));
        let (less, r) = (lanes(s, less), lanes(s, s.mul(load(s, r), scale)));
        for (((row, less), k), r) in rows.chunks_exact_mut(d).zip(less).zip(learned).zip(r) {
            let row = &mut row[cols.clone()];
            let mut next = take(s, row);
            times(s, &mut next, -less);
            add_times(s, &mut next, &v, k);
            put(s, next, row);
            add_times(s, &mut y, &next, r);
        }
    }
    y
}
