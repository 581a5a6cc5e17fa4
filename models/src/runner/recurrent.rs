//! Recurrences: each segment of a sequence's tokens reads the old state and writes the new one.

use super::frame::Frame;
use crate::{
    error::Error,
    graph::{CarriedState, DeltaSizes, GlaSizes, KdaSizes, SsdSizes, Step, WkvSizes},
};
use backstitch_core::scan::{
    Conv, Delta, DeltaInputs, Gla, GlaInputs, Kda, KdaInputs, Selective, SelectiveInputs, Ssd, Wkv6,
    Wkv6Inputs, Wkv7, Wkv7Inputs,
};
use backstitch_kv::{StateSegment, States, Ubatch};
use core::ops::Range;

/// Return the states of the ubatch's sequences that a step carries.
///
/// # Errors
/// [`Error::NoLayer`] if the layer has no such state.
pub(super) fn states_of<'u>(ubatch: &'u mut Ubatch<'_>, state: &CarriedState) -> Result<States<'u>, Error> {
    ubatch.states(state.layer, state.number).ok_or(Error::NoLayer { layer: state.layer })
}

/// Return the states of a recurrence.
///
/// # Errors
/// [`Error::Operands`] if the step carries none, [`Error::NoLayer`] as [`states_of`].
fn states<'u>(ubatch: &'u mut Ubatch<'_>, step: &Step) -> Result<States<'u>, Error> {
    states_of(ubatch, step.state().ok_or(Error::Operands { operation: step.name })?)
}

/// Return the elements of a segment's rows in a matrix of `width` columns.
fn rows(run: &StateSegment, width: usize) -> Range<usize> {
    run.start as usize * width..run.end as usize * width
}

impl Frame<'_> {
    /// Convolve causally: the state holds the inputs of the taps before the segment.
    pub(super) fn conv(&mut self, step: &Step, silu: bool, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let (taps, bias) = self.weight_and_bias(step)?;
        let n_channels = self.values.width(x);
        let conv = Conv { n_channels, taps, bias, silu };
        let [x, out] = self.values.slices([x, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let rows = rows(&run, n_channels);
            conv.run(self.set, &x[rows.clone()], states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    /// Step the selective scan of Mamba-1.
    pub(super) fn selective(&mut self, step: &Step, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([x, dt, b, c], [out]) = (step.reads()?, step.writes()?);
        let [a, d] = self.vectors(step)?;
        let (n_channels, d_state) = (self.values.width(x), self.values.width(b));
        let scan = Selective { n_channels, d_state, a, d };
        let [x, dt, b, c, out] = self.values.slices([x, dt, b, c, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let (wide, narrow) = (rows(&run, n_channels), rows(&run, d_state));
            let (x, dt, b, c) = (&x[wide.clone()], &dt[wide.clone()], &b[narrow.clone()], &c[narrow]);
            let input = SelectiveInputs { x, dt, b, c };
            scan.run(self.set, self.pool, &input, states.carry(&run), &mut out[wide])?;
        }
        Ok(())
    }

    /// Step the recurrence of Mamba-2.
    pub(super) fn ssd(&mut self, step: &Step, sizes: SsdSizes, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        if step.reads.len() == 4 {
            return self.ssd_apart(step, sizes, ubatch);
        }
        let ([xbc, dt], [out]) = (step.reads()?, step.writes()?);
        let SsdSizes { n_head, d_head, n_group, d_state } = sizes;
        let [dt_bias, a, d] = self.vectors(step)?;
        let ssd = Ssd { n_head, d_head, n_group, d_state, dt_bias, a, d };
        let [xbc, dt, out] = self.values.slices([xbc, dt, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let (xbc, dt) = (&xbc[rows(&run, ssd.width())], &dt[rows(&run, n_head)]);
            let out = &mut out[rows(&run, n_head * d_head)];
            ssd.run(self.set, self.pool, xbc, dt, states.carry(&run), out)?;
        }
        Ok(())
    }

    /// Step the recurrence of Mamba-2 with x, B and C in values of their own.
    fn ssd_apart(&mut self, step: &Step, sizes: SsdSizes, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([x, b, c, dt], [out]) = (step.reads()?, step.writes()?);
        let SsdSizes { n_head, d_head, n_group, d_state } = sizes;
        let [dt_bias, a, d] = self.vectors(step)?;
        let ssd = Ssd { n_head, d_head, n_group, d_state, dt_bias, a, d };
        let [x, b, c, dt, out] = self.values.slices([x, b, c, dt, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let (wide, narrow) = (rows(&run, n_head * d_head), rows(&run, n_group * d_state));
            let xbc = [&x[wide.clone()], &b[narrow.clone()], &c[narrow]];
            let dt = &dt[rows(&run, n_head)];
            ssd.run_apart(self.set, self.pool, xbc, dt, states.carry(&run), &mut out[wide])?;
        }
        Ok(())
    }

    /// Move rows down by one token. The state is the row before the first; the last row becomes the
    /// new state.
    pub(super) fn shift(&mut self, step: &Step, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let width = self.values.width(x);
        let [x, out] = self.values.slices([x, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let rows = rows(&run, width);
            let (x, out, state) = (&x[rows.clone()], &mut out[rows], states.carry(&run));
            if let Some((before, last)) = x.len().checked_sub(width).map(|end| x.split_at(end)) {
                let (first, rest) = out.split_at_mut(width);
                first.copy_from_slice(state);
                rest.copy_from_slice(before);
                state.copy_from_slice(last);
            }
        }
        Ok(())
    }

    /// Step the recurrence of RWKV 6.
    pub(super) fn wkv6(
        &mut self,
        step: &Step,
        sizes: WkvSizes,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let ([r, w, k, v], [out]) = (step.reads()?, step.writes()?);
        let WkvSizes { n_head, d_head, eps } = sizes;
        let [first, norm, norm_bias] = self.vectors(step)?;
        let wkv = Wkv6 { n_head, d_head, first, norm, norm_bias, eps };
        let [r, w, k, v, out] = self.values.slices([r, w, k, v, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let rows = rows(&run, n_head * d_head);
            let [r, w, k, v] = [&*r, &*w, &*k, &*v].map(|x| &x[rows.clone()]);
            let x = Wkv6Inputs { r, w, k, v };
            wkv.run(self.set, self.pool, &x, states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    /// Step the recurrence of RWKV 7.
    pub(super) fn wkv7(
        &mut self,
        step: &Step,
        sizes: WkvSizes,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let ([r, w, k, v, a], [out]) = (step.reads()?, step.writes()?);
        let WkvSizes { n_head, d_head, eps } = sizes;
        let [k_k, k_a, r_k, norm, norm_bias] = match step.weights.len() {
            3 => {
                let [k_k, k_a, r_k] = self.vectors(step)?;
                [k_k, k_a, r_k, &[], &[]]
            }
            _ => self.vectors(step)?,
        };
        let wkv = Wkv7 { n_head, d_head, k_k, k_a, r_k, norm, norm_bias, eps };
        let [r, w, k, v, a, out] = self.values.slices([r, w, k, v, a, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let rows = rows(&run, n_head * d_head);
            let [r, w, k, v, a] = [&*r, &*w, &*k, &*v, &*a].map(|x| &x[rows.clone()]);
            let x = Wkv7Inputs { r, w, k, v, a };
            wkv.run(self.set, self.pool, &x, states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    /// Step gated linear attention.
    pub(super) fn gla(&mut self, step: &Step, sizes: GlaSizes, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([r, w, k, v], [out]) = (step.reads()?, step.writes()?);
        let GlaSizes { n_head, n_head_kv, d_head } = sizes;
        let gla = Gla { n_head, n_head_kv, d_head };
        let [r, w, k, v, out] = self.values.slices([r, w, k, v, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let (own, shared) = (rows(&run, n_head * d_head), rows(&run, n_head_kv * d_head));
            let (r, w) = (&r[own.clone()], &w[own.clone()]);
            let x = GlaInputs { r, w, k: &k[shared.clone()], v: &v[shared] };
            gla.run(self.set, self.pool, &x, states.carry(&run), &mut out[own])?;
        }
        Ok(())
    }

    /// Step Kimi delta attention.
    pub(super) fn kda(&mut self, step: &Step, sizes: KdaSizes, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let ([q, k, v, beta, alpha], [out]) = (step.reads()?, step.writes()?);
        let KdaSizes { n_head, d_k, d_v, eps } = sizes;
        let [dt_bias, a] = self.vectors(step)?;
        let kda = Kda { n_head, d_k, d_v, dt_bias, a, eps };
        let [q, k, v, beta, alpha, out] = self.values.slices([q, k, v, beta, alpha, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let (keys, values) = (rows(&run, n_head * d_k), rows(&run, n_head * d_v));
            let [q, k, alpha] = [&*q, &*k, &*alpha].map(|x| &x[keys.clone()]);
            let x = KdaInputs { q, k, v: &v[values.clone()], beta: &beta[rows(&run, n_head)], alpha };
            kda.run(self.set, self.pool, &x, states.carry(&run), &mut out[values])?;
        }
        Ok(())
    }

    /// Step the gated delta rule.
    pub(super) fn delta(
        &mut self,
        step: &Step,
        sizes: DeltaSizes,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let ([qkv, beta, alpha], [out]) = (step.reads()?, step.writes()?);
        let DeltaSizes { n_head, n_head_k, sharing, d_k, d_v, eps } = sizes;
        let [dt_bias, a] = self.vectors(step)?;
        let delta = Delta { n_head, n_head_k, sharing, d_k, d_v, dt_bias, a, eps };
        let [qkv, beta, alpha, out] = self.values.slices([qkv, beta, alpha, out])?;
        let mut states = states(ubatch, step)?;
        for run in states.segments() {
            let gates = rows(&run, n_head);
            let x = DeltaInputs {
                qkv: &qkv[rows(&run, delta.width())],
                beta: &beta[gates.clone()],
                alpha: &alpha[gates],
            };
            let out = &mut out[rows(&run, n_head * d_v)];
            delta.run(self.set, self.pool, &x, states.carry(&run), out)?;
        }
        Ok(())
    }
}
