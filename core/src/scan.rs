//! Recurrent layers: a state is read, tokens step it in order, the new state is written.
//!
//! What is computed, on bits: each state number goes through the same operations in the order of the tokens, so where a
//! run of tokens is cut, how many threads share the heads, and which kernel set runs them makes no difference.

use crate::error::{Error, length};
use crate::isa::KernelSet;
use crate::pool::{Bands, Parts, Pool, Share, n_jobs};

/// A causal depth-wise convolution, then SiLU.
///
/// `out[t][c] = silu(bias[c] + sum over j of taps[j][c] * x[t - d_conv + 1 + j][c])`, one fused multiply-add a tap, in the
/// order of j. The last tap meets the token itself.
#[derive(Clone, Copy, Debug)]
pub struct Conv<'a> {
    /// Columns of a row.
    pub n_channels: usize,
    /// `[d_conv, n_channels]`.
    pub taps: &'a [f32],
    /// `[n_channels]`, or empty for none.
    pub bias: &'a [f32],
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

/// The state-space step of Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060, the recurrent form of SSD).
///
/// For each token and head, with `dt = softplus(dt + dt_bias)`: `state = fma(B, x * dt, state * exp(dt * a))` and
/// `y = fma(d, x, sum of state * C)`, the sum over sixteen lanes and their fixed tree.
#[derive(Clone, Copy, Debug)]
pub struct Ssd<'a> {
    /// Heads.
    pub n_head: usize,
    /// Channels a head.
    pub d_head: usize,
    /// Groups of heads that share B and C; divides `n_head`.
    pub n_group: usize,
    /// State numbers a channel.
    pub d_state: usize,
    /// `[n_head]`.
    pub dt_bias: &'a [f32],
    /// Decay, negative: `[n_head]`.
    pub a: &'a [f32],
    /// Skip connection: `[n_head]`.
    pub d: &'a [f32],
}

/// State numbers times tokens that are worth a job.
const LEAST: usize = 1 << 14;

impl Ssd<'_> {
    /// Columns of an input row: x, B and C side by side.
    pub fn width(&self) -> usize {
        self.n_head * self.d_head + 2 * self.n_group * self.d_state
    }

    /// State numbers of one sequence.
    pub fn state_len(&self) -> usize {
        self.n_head * self.d_head * self.d_state
    }

    /// Steps `state` `[n_head, d_head, d_state]` through the tokens of one run: `xbc` `[n_tokens, width]`, `dt`
    /// `[n_tokens, n_head]`, `out` `[n_tokens, n_head * d_head]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other; nothing was written then. [`Error::Panicked`] from the pool.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        xbc: &[f32],
        dt: &[f32],
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = self.check(xbc, dt, state, out)?;
        let jobs = n_jobs(pool, state.len() * n_tokens, LEAST).min(self.n_head.max(1));
        let per_head = self.d_head * self.d_state;
        let states = Parts::new(state, per_head, jobs);
        let bands = Bands::new(out, self.n_head * self.d_head, self.d_head, Share::alone(jobs, self.n_head));
        pool.run(jobs, &|job| {
            if let (Some((first, states)), Some(mut band)) = (states.take(job), bands.take(job)) {
                let first = first / per_head.max(1);
                let heads = first..first + states.len() / per_head.max(1);
                (set.ssd)(self, heads, xbc, dt, states, &mut band);
            }
        })?;
        Ok(())
    }

    fn check(&self, xbc: &[f32], dt: &[f32], state: &[f32], out: &[f32]) -> Result<usize, Error> {
        let n_tokens = xbc.len() / self.width().max(1);
        if self.n_group == 0 || !self.n_head.is_multiple_of(self.n_group) {
            return Err(Error::Ragged { what: "heads of a scan", found: self.n_head, block: self.n_group });
        }
        length("scan's input", xbc.len(), n_tokens * self.width())?;
        length("scan's time steps", dt.len(), n_tokens * self.n_head)?;
        length("scan's state", state.len(), self.state_len())?;
        length("scan's output", out.len(), n_tokens * self.n_head * self.d_head)?;
        for weight in [self.dt_bias, self.a, self.d] {
            length("scan's weights", weight.len(), self.n_head)?;
        }
        Ok(n_tokens)
    }
}

#[cfg(test)]
mod tests;
