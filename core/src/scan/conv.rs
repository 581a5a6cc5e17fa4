//! Causal convolution along a sequence: checks, and the moving of its state.

use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::conv::Conv;

impl Conv<'_> {
    /// Convolve `x` `[n_tokens, n_channels]`, a segment of one sequence, into `out`, and move
    /// `state` on: the last `d_conv - 1` rows, oldest first, before and after.
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
