//! The scan of Mamba-2: checks, and heads shared out.

use super::cost::{LEAST, STEP};
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::ssd::{Ssd, Xbc};
use crate::pool::{Bands, Parts, Pool, Share, n_limited_jobs};

impl Ssd<'_> {
    /// Return the state elements of one sequence.
    pub fn state_len(&self) -> usize {
        self.n_head * self.d_head * self.d_state
    }

    /// Step `state` `[n_head, d_head, d_state]` through the tokens of one segment: `xbc`
    /// `[n_tokens, width]`, `dt` `[n_tokens, n_head]`, `out` `[n_tokens, n_head * d_head]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other, [`Error::Ragged`] if groups do not
    /// divide the heads: nothing was written then. [`Error::Panicked`] if a job of the pool
    /// panicked.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        xbc: &[f32],
        dt: &[f32],
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        length("scan's input", xbc.len(), dt.len() / self.n_head.max(1) * self.width())?;
        self.step(set, pool, &Xbc::joined(self, xbc), dt, state, out)
    }

    /// Step as [`Ssd::run`] does, with x `[n_tokens, n_head * d_head]`, B and C `[n_tokens, n_group
    /// * d_state]` apart from each other.
    ///
    /// # Errors
    /// As [`Ssd::run`].
    pub fn run_apart(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        [x, b, c]: [&[f32]; 3],
        dt: &[f32],
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = dt.len() / self.n_head.max(1);
        length("scan's input", x.len(), n_tokens * self.n_head * self.d_head)?;
        for x in [b, c] {
            length("scan's input", x.len(), n_tokens * self.n_group * self.d_state)?;
        }
        self.step(set, pool, &Xbc::apart(self, [x, b, c]), dt, state, out)
    }

    /// Step through rows of x, B and C that are as many as those of `dt`.
    fn step(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        xbc: &Xbc<'_>,
        dt: &[f32],
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = self.check(dt, state, out)?;
        let jobs = n_limited_jobs(pool, state.len() * n_tokens, LEAST, STEP).min(self.n_head.max(1));
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

    fn check(&self, dt: &[f32], state: &[f32], out: &[f32]) -> Result<usize, Error> {
        let n_tokens = dt.len() / self.n_head.max(1);
        if self.n_group == 0 || !self.n_head.is_multiple_of(self.n_group) {
            return Err(Error::Ragged { what: "heads of a scan", found: self.n_head, block: self.n_group });
        }
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
