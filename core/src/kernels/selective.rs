//! The selective scan of Mamba-1: channels in lanes, state numbers and tokens in order.

use super::map::{load, store};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::pool::Band;
use crate::scan::{Selective, SelectiveInputs};

/// Steps the states of the channels that `out` has as its columns, in panels `[d_state, 16]`, through all tokens of a
/// run.
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
