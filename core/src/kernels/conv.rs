//! Causal depth-wise convolution: channels in lanes, taps in order.

use super::map::{load, store};
use crate::isa::{LANES, Simd};
use crate::math;

/// A causal depth-wise convolution, then SiLU if asked for: the short convolution of Mamba, LFM2
/// and the gated delta nets.
///
/// `out[t][c] = silu(bias[c] + sum over j of taps[j][c] * x[t - d_conv + 1 + j][c])`, one fused
/// multiply-add a tap, in the order of j. The last tap meets the token itself; one tap alone needs
/// no state.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::scan::Conv;
///
/// // Each output is the mean of a row and the row before it.
/// let conv = Conv { n_channels: 1, taps: &[0.5, 0.5], bias: &[], silu: false };
/// let (mut state, mut out) = ([2.0], [0.0; 2]);
/// conv.run(KernelSet::scalar(), &[4.0, 6.0], &mut state, &mut out)?;
/// assert_eq!((out, state), ([3.0, 5.0], [6.0]));
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Conv<'a> {
    /// Columns of a row.
    pub n_channels: usize,
    /// `[d_conv, n_channels]`.
    pub taps: &'a [f32],
    /// `[n_channels]`, or empty for none.
    pub bias: &'a [f32],
    /// True if SiLU follows.
    pub silu: bool,
}

/// Convolve rows `x` `[n_tokens, n_channels]` of one sequence into `out`. `before`, `[d_conv - 1,
/// n_channels]`, holds the rows in front of them, oldest first.
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
