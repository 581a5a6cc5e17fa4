//! Layers with a recurrent state: each run of a sequence's tokens reads the old state and writes the new one.

use super::Frame;
use crate::{
    error::Error,
    graph::{SsdParams, Value, WeightId},
};
use backstitch_core::scan::{Conv, Ssd};
use backstitch_kv::{StateRun, States, Ubatch};
use core::ops::Range;

/// Brings the part `part` of the state that `run` reads to where it is written, and returns it there.
fn carried<'s>(states: &'s mut States<'_>, run: &StateRun, part: Range<usize>) -> &'s mut [f32] {
    let len = states.conv_len + states.state_len;
    let at = |slot: u32| slot as usize * len + part.start..slot as usize * len + part.end;
    match run.read {
        Some(slot) if slot != run.write => states.states.copy_within(at(slot), at(run.write).start),
        Some(_) => {}
        None => states.states[at(run.write)].fill(0.0),
    }
    &mut states.states[at(run.write)]
}

/// Rows `start..end` of a matrix of `width` columns, as a range of elements.
fn rows(run: &StateRun, width: usize) -> Range<usize> {
    run.start as usize * width..run.end as usize * width
}

impl Frame<'_> {
    pub(super) fn conv(
        &mut self,
        layer: usize,
        x: Value,
        weight: WeightId,
        bias: WeightId,
        out: Value,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let n_channels = self.values.width(x);
        let conv = Conv { n_channels, taps: self.weights.vector(weight), bias: self.weights.vector(bias) };
        let [x, out] = self.values.slices([x, out])?;
        let mut states = ubatch.states(layer).ok_or(Error::NoLayer { layer })?;
        for run in states.runs() {
            let (rows, part) = (rows(&run, n_channels), 0..states.conv_len);
            let state = carried(&mut states, &run, part);
            conv.run(self.set, &x[rows.clone()], state, &mut out[rows])?;
        }
        Ok(())
    }

    pub(super) fn ssd(
        &mut self,
        layer: usize,
        xbc: Value,
        dt: Value,
        out: Value,
        params: &SsdParams,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let SsdParams { n_head, d_head, n_group, d_state, .. } = *params;
        let [dt_bias, a, d] = [params.dt_bias, params.a, params.d].map(|id| self.weights.vector(id));
        let ssd = Ssd { n_head, d_head, n_group, d_state, dt_bias, a, d };
        let [xbc, dt, out] = self.values.slices([xbc, dt, out])?;
        let mut states = ubatch.states(layer).ok_or(Error::NoLayer { layer })?;
        for run in states.runs() {
            let part = states.conv_len..states.conv_len + states.state_len;
            let state = carried(&mut states, &run, part);
            let (xbc, dt) = (&xbc[rows(&run, ssd.width())], &dt[rows(&run, n_head)]);
            let out = &mut out[rows(&run, n_head * d_head)];
            ssd.run(self.set, self.pool, xbc, dt, state, out)?;
        }
        Ok(())
    }
}
