//! The scan of Mamba-1: checks, and channels shared out.

use super::cost::STEP;
use crate::error::{Error, length};
use crate::isa::LANES;
use crate::kernel_set::KernelSet;
use crate::kernels::selective::{Selective, SelectiveInputs};
use crate::pool::{Bands, Parts, Pool, Share, n_limited_jobs};

/// State elements times tokens that are worth a job: each costs an exponential.
const LEAST: usize = 1 << 12;

impl Selective<'_> {
    /// Return the state elements of one sequence.
    pub fn state_len(&self) -> usize {
        self.n_channels * self.d_state
    }

    /// Step `state` through the tokens of one segment; `out` is `[n_tokens, n_channels]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other; nothing was written then.
    /// [`Error::Panicked`] if a job of the pool panicked.
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
