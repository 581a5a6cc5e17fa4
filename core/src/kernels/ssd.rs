//! The recurrence of Mamba-2: state columns in lanes, tokens in order.
//!
//! Shapes: a row of input is `x` `[n_head, d_head]`, `B` and `C` `[n_group, d_state]` each, side by
//! side or apart; the state of a head is `[d_head, d_state]`. A channel's output is a sum along
//! `d_state`, the lanes, so it goes through the fixed tree.

use super::map::{load, store};
use crate::float::fma;
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use core::ops::Range;

/// The state-space step of Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060, the recurrent form of SSD).
///
/// For each token and head, with `dt = softplus(dt + dt_bias)`: `state = fma(B, x * dt, state *
/// exp(dt * a))` and `y = fma(d, x, sum of state * C)`, the sum over sixteen lanes and their fixed
/// tree.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::pool::Inline;
/// use backstitch_core::scan::Ssd;
///
/// let ssd = Ssd {
///     n_head: 1,
///     d_head: 1,
///     n_group: 1,
///     d_state: 1,
///     dt_bias: &[0.0],
///     a: &[-1.0],
///     d: &[1.0],
/// };
/// let (xbc, dt) = ([1.0, 0.5, 2.0, -1.0, 1.0, 0.5], [0.1, 0.2]);
/// let set = KernelSet::scalar();
/// let (mut out, mut state) = ([0.0; 2], [0.0]);
/// ssd.run(set, &Inline, &xbc, &dt, &mut state, &mut out)?;
///
/// // Token by token the bits are the same.
/// let (mut out_2, mut state_2) = ([0.0; 2], [0.0]);
/// let (first, second) = out_2.split_at_mut(1);
/// ssd.run(set, &Inline, &xbc[..3], &dt[..1], &mut state_2, first)?;
/// ssd.run(set, &Inline, &xbc[3..], &dt[1..], &mut state_2, second)?;
/// assert_eq!((out, state), (out_2, state_2));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ssd<'a> {
    /// Heads.
    pub n_head: usize,
    /// Channels a head.
    pub d_head: usize,
    /// Groups of heads that share B and C; divides `n_head`.
    pub n_group: usize,
    /// State elements of a channel.
    pub d_state: usize,
    /// `[n_head]`.
    pub dt_bias: &'a [f32],
    /// Decay, negative: `[n_head]`.
    pub a: &'a [f32],
    /// Skip connection: `[n_head]`.
    pub d: &'a [f32],
}

impl Ssd<'_> {
    /// Return the columns of an input row: x, B and C side by side.
    pub fn width(&self) -> usize {
        self.n_head * self.d_head + 2 * self.n_group * self.d_state
    }
}

/// The rows of x, B and C of a segment of tokens, which may lie in wider ones.
#[derive(Clone, Copy, Debug)]
pub struct Xbc<'a> {
    x: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    /// From row to row of x.
    x_stride: usize,
    /// From row to row of B and of C.
    bc_stride: usize,
}

impl<'a> Xbc<'a> {
    /// Return the rows of `xbc`, in which the three lie side by side.
    pub(crate) fn joined(ssd: &Ssd<'_>, xbc: &'a [f32]) -> Self {
        let from = |first: usize| xbc.get(first..).unwrap_or_default();
        let (n_x, n_b, stride) = (ssd.n_head * ssd.d_head, ssd.n_group * ssd.d_state, ssd.width());
        Xbc { x: xbc, b: from(n_x), c: from(n_x + n_b), x_stride: stride, bc_stride: stride }
    }

    /// Return the rows of `x`, `b` and `c`.
    pub(crate) fn apart(ssd: &Ssd<'_>, [x, b, c]: [&'a [f32]; 3]) -> Self {
        Xbc { x, b, c, x_stride: ssd.n_head * ssd.d_head, bc_stride: ssd.n_group * ssd.d_state }
    }

    /// Return x, B and C of token `t`.
    fn row(&self, ssd: &Ssd<'_>, t: usize) -> [&'a [f32]; 3] {
        let (n_x, n_b) = (ssd.n_head * ssd.d_head, ssd.n_group * ssd.d_state);
        let (x, bc) = (t * self.x_stride, t * self.bc_stride);
        [&self.x[x..x + n_x], &self.b[bc..bc + n_b], &self.c[bc..bc + n_b]]
    }
}

/// Step the states `[heads, d_head, d_state]` of some heads through all tokens of a segment.
///
/// `dt`: `[n_tokens, n_head]`; `out`: these heads' columns.
#[inline(always)]
pub(crate) fn ssd<S: Simd>(
    s: S,
    ssd: &Ssd<'_>,
    heads: Range<usize>,
    xbc: &Xbc<'_>,
    dt: &[f32],
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (d_head, d_state) = (ssd.d_head, ssd.d_state);
    for (t, dt) in dt.chunks_exact(ssd.n_head.max(1)).enumerate() {
        let [x, b, c] = xbc.row(ssd, t);
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

/// Set `state = state * decay + B * x`; return the sum of `state * C`.
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
