//! The selective scan of Mamba-1: channels in lanes, state elements and tokens in order.
//!
//! Shapes: `x`, `dt` and `out` `[n_tokens, n_channels]`, `B` and `C` `[n_tokens, d_state]`, the
//! state `[n_panels, d_state, 16]`. A panel of sixteen channels goes through all tokens before the
//! next panel begins, so its state stays in the nearest cache.

use super::map::{load, store};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;

/// The selective scan of Mamba-1 (Gu and Dao, 2023, arXiv 2312.00752, algorithm 2).
///
/// For each token and channel, with `dt = softplus(dt)`, and for each state element j of the
/// channel: `state[j] = fma(B[j], x * dt, state[j] * exp(dt * a[j]))`; then `y = fma(d, x, sum of
/// state[j] * C[j])`, the sum one chain of fused multiply-adds from 0 in the order of j. B and C
/// are the token's, the same for all channels.
///
/// Channels are lanes, so the state lies in panels of sixteen channels, the last maybe narrower:
/// `[n_panels, d_state, 16]`.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::pool::Inline;
/// use backstitch_core::scan::{Selective, SelectiveInputs};
///
/// let scan = Selective { n_channels: 1, d_state: 1, a: &[-1.0], d: &[0.5] };
/// // A time step of 0, which softplus makes of -200, leaves the state as it is.
/// let input = SelectiveInputs { x: &[2.0], dt: &[-200.0], b: &[1.0], c: &[1.0] };
/// let (mut state, mut out) = ([3.0], [0.0]);
/// scan.run(KernelSet::scalar(), &Inline, &input, &mut state, &mut out)?;
/// assert_eq!((state, out), ([3.0], [0.5 * 2.0 + 3.0]));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Selective<'a> {
    /// Channels.
    pub n_channels: usize,
    /// State elements of a channel.
    pub d_state: usize,
    /// Decay, negative: `[d_state, n_channels]`.
    pub a: &'a [f32],
    /// Skip connection: `[n_channels]`.
    pub d: &'a [f32],
}

/// The inputs of a [`Selective`] scan: a segment of tokens.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveInputs<'a> {
    /// `[n_tokens, n_channels]`.
    pub x: &'a [f32],
    /// Time steps before softplus: `[n_tokens, n_channels]`.
    pub dt: &'a [f32],
    /// `[n_tokens, d_state]`.
    pub b: &'a [f32],
    /// `[n_tokens, d_state]`; decides the output, not the state.
    pub c: &'a [f32],
}

/// Step the states of the channels that `out` has as its columns, in panels `[d_state, 16]`,
/// through all tokens of a segment.
#[inline(always)]
pub(crate) fn selective<S: Simd>(
    s: S,
    scan: &Selective<'_>,
    input: &SelectiveInputs<'_>,
    states: &mut [f32],
    out: &mut Band<'_, f32>,
) {
    let (cols, d_state) = (out.cols(), scan.d_state.max(1));
    let panels = states.chunks_mut(LANES * d_state);
    for (first, state) in cols.clone().step_by(LANES).zip(panels) {
        let width = LANES.min(cols.end - first);
        let of_panel = |row: &[f32]| load(s, &row[first..first + width]);
        let d = of_panel(scan.d);
        let rows = input.x.chunks_exact(scan.n_channels).zip(input.dt.chunks_exact(scan.n_channels));
        let shared = input.b.chunks_exact(d_state).zip(input.c.chunks_exact(d_state));
        for (t, ((x, dt), (b, c))) in rows.zip(shared).enumerate() {
            let (x, dt) = (of_panel(x), math::softplus(s, of_panel(dt)));
            let (x_dt, mut sum) = (s.mul(x, dt), s.splat(0.0));
            let decays = scan.a.chunks_exact(scan.n_channels);
            for (((state, a), &b), &c) in state.chunks_mut(width).zip(decays).zip(b).zip(c) {
                let decay = math::exp(s, s.mul(dt, of_panel(a)));
                let next = s.fma(s.splat(b), x_dt, s.mul(load(s, state), decay));
                store(s, next, state);
                sum = s.fma(next, s.splat(c), sum);
            }
            let at = first - cols.start;
            store(s, s.fma(d, x, sum), &mut out.row(t)[at..at + width]);
        }
    }
}
