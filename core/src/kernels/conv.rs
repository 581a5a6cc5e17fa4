//! Causal depth-wise convolution: channels in lanes, taps in order.

use super::map::{load, store};
use crate::isa::{LANES, Simd};
use crate::math;
use crate::scan::Conv;

/// Rows `x` `[n_tokens, n_channels]` of one sequence to `out`; `before` `[d_conv - 1, n_channels]` holds the rows in front
/// of them, oldest first.
#[inline(always)]
pub(crate) fn conv<S: Simd>(s: S, conv: &Conv<'_>, before: &[f32], x: &[f32], out: &mut [f32]) {
    let width = conv.n_channels.max(1);
    let n_before = before.len() / width;
    for (t, out) in out.chunks_exact_mut(width).enumerate() {
        for (first, out) in (0..).step_by(LANES).zip(out.chunks_mut(LANES)) {
            let at = |row: &[f32]| load(s, &row[first..first + out.len()]);
            let mut sum = if conv.bias.is_empty() { s.splat(0.0) } else { at(conv.bias) };
            for (j, tap) in conv.taps.chunks_exact(width).enumerate() {
                let row = match (t + j).checked_sub(n_before) {
                    Some(t) => &x[t * width..(t + 1) * width],
                    None => &before[(t + j) * width..(t + j + 1) * width],
                };
                sum = s.fma(at(tap), at(row), sum);
            }
            store(s, if conv.silu { math::silu(s, sum) } else { sum }, out);
        }
    }
}
