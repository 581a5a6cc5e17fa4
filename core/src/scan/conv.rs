//! Causal convolution along a sequence.

use crate::error::{Error, length};
use crate::isa::KernelSet;

/// A causal depth-wise convolution, then SiLU where that is asked for.
///
/// `out[t][c] = silu(bias[c] + sum over j of taps[j][c] * x[t - d_conv + 1 + j][c])`, one fused multiply-add a tap, in the
/// order of j. The last tap meets the token itself; one tap alone needs no state.
#[derive(Clone, Copy, Debug)]
pub struct Conv<'a> {
    /// Columns of a row.
    pub n_channels: usize,
    /// `[d_conv, n_channels]`.
    pub taps: &'a [f32],
    /// `[n_channels]`, or empty for none.
    pub bias: &'a [f32],
    /// Whether SiLU follows.
    pub silu: bool,
}

impl Conv<'_> {
    /// Convolves `x` `[n_tokens, n_channels]`, a run of one sequence, into `out`, and moves `state` on: the last
    /// `d_conv - 1` rows, oldest first, before and after.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other; nothing was written then.
    pub fn run(&self, set: &KernelSet, x: &[f32], state: &mut [f32], out: &mut [f32]) -> Result<(), Error> {
        let width = self.n_channels.max(1);
        let n_tokens = x.len() / width;
        length("taps", self.taps.len() % width, 0)?;
        length("convolution's state", state.len() + width, self.taps.len())?;
        length("convolution's input", x.len(), n_tokens * width)?;
        length("convolution's output", out.len(), x.len())?;
        if !self.bias.is_empty() {
            length("convolution's bias", self.bias.len(), self.n_channels)?;
        }
        (set.conv)(self, state, x, out);
        // The newest rows, from `x` and, if that is short, from the old state.
        let from_x = x.len().min(state.len());
        state.copy_within(from_x.., 0);
        let kept = state.len() - from_x;
        state[kept..].copy_from_slice(&x[x.len() - from_x..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
