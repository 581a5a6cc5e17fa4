//! The scan of Mamba-1.

use super::STEP;
use crate::error::{Error, length};
use crate::isa::{KernelSet, LANES};
use crate::pool::{Bands, Parts, Pool, Share, n_limited_jobs};

/// The selective scan of Mamba-1 (Gu and Dao, 2023, arXiv 2312.00752, algorithm 2).
///
/// For each token and channel, with `dt = softplus(dt)`, and for each state number j of the channel:
/// `state[j] = fma(B[j], x * dt, state[j] * exp(dt * a[j]))`; then `y = fma(d, x, sum of state[j] * C[j])`, the sum one
/// chain of fused multiply-adds from 0 in the order of j. B and C are the token's, the same for all channels.
///
/// Channels are lanes. So the state lies in panels of sixteen channels, the last maybe narrower: `[n_panels, d_state, 16]`.
#[derive(Clone, Copy, Debug)]
pub struct Selective<'a> {
    /// Channels.
    pub n_channels: usize,
    /// State numbers a channel.
    pub d_state: usize,
    /// Decay, negative: `[d_state, n_channels]`.
    pub a: &'a [f32],
    /// Skip connection: `[n_channels]`.
    pub d: &'a [f32],
}

/// What enters a [`Selective`] scan with the tokens of one run.
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

/// State numbers times tokens that are worth a job: each costs an exponential.
const LEAST: usize = 1 << 12;

impl Selective<'_> {
    /// State numbers of one sequence.
    pub fn state_len(&self) -> usize {
        self.n_channels * self.d_state
    }

    /// Steps `state` through the tokens of one run; `out`: `[n_tokens, n_channels]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other; nothing was written then. [`Error::Panicked`] from the pool.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        input: &SelectiveInputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = self.check(input, state, out)?;
        let n_panels = self.n_channels.div_ceil(LANES);
        let jobs = n_limited_jobs(pool, state.len() * n_tokens, LEAST, STEP).min(n_panels.max(1));
        let states = Parts::new(state, LANES * self.d_state, jobs);
        let bands = Bands::new(out, self.n_channels, LANES, Share::alone(jobs, n_panels));
        pool.run(jobs, &|job| {
            if let (Some((_, states)), Some(mut band)) = (states.take(job), bands.take(job)) {
                (set.selective)(self, input, states, &mut band);
            }
        })?;
        Ok(())
    }

    fn check(&self, input: &SelectiveInputs<'_>, state: &[f32], out: &[f32]) -> Result<usize, Error> {
        let n_tokens = input.x.len() / self.n_channels.max(1);
        length("scan's decay", self.a.len(), self.state_len())?;
        length("scan's skip connection", self.d.len(), self.n_channels)?;
        for (what, x) in [("scan's input", input.x.len()), ("scan's time steps", input.dt.len())] {
            length(what, x, n_tokens * self.n_channels)?;
        }
        for (what, x) in [("scan's B", input.b.len()), ("scan's C", input.c.len())] {
            length(what, x, n_tokens * self.d_state)?;
        }
        length("scan's state", state.len(), self.state_len())?;
        length("scan's output", out.len(), n_tokens * self.n_channels)?;
        Ok(n_tokens)
    }
}

#[cfg(test)]
mod tests;
