//! Layers with a recurrent state: each run of a sequence's tokens reads the old state and writes the new one.

use super::Frame;
use crate::{
    error::Error,
    graph::{ConvParams, SsdParams, StateId, Value, WeightId},
};
use backstitch_core::scan::{Conv, Selective, SelectiveInputs, Ssd};
use backstitch_kv::{StateRun, States, Ubatch};
use core::ops::Range;

/// The piece of the memory that an operation steps.
pub(super) fn states_of<'u>(ubatch: &'u mut Ubatch<'_>, state: StateId) -> Result<States<'u>, Error> {
    ubatch.states(state.layer, state.part).ok_or(Error::NoLayer { layer: state.layer })
}

/// Rows `start..end` of a matrix of `width` columns, as a range of elements.
pub(super) fn rows(run: &StateRun, width: usize) -> Range<usize> {
    run.start as usize * width..run.end as usize * width
}

impl Frame<'_> {
    pub(super) fn conv(
        &mut self,
        state: StateId,
        x: Value,
        out: Value,
        params: ConvParams,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let n_channels = self.values.width(x);
        let bias = params.bias.map_or(&[][..], |bias| self.weights.vector(bias));
        let conv = Conv { n_channels, taps: self.weights.vector(params.taps), bias, silu: params.silu };
        let [x, out] = self.values.slices([x, out])?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            let rows = rows(&run, n_channels);
            conv.run(self.set, &x[rows.clone()], states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    /// `values`: x, time steps, B, C, and the result.
    pub(super) fn selective(
        &mut self,
        state: StateId,
        values: [Value; 5],
        [a, d]: [WeightId; 2],
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let (n_channels, d_state) = (self.values.width(values[0]), self.values.width(values[2]));
        let [a, d] = [a, d].map(|id| self.weights.vector(id));
        let scan = Selective { n_channels, d_state, a, d };
        let [x, dt, b, c, out] = self.values.slices(values)?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            let (wide, narrow) = (rows(&run, n_channels), rows(&run, d_state));
            let (x, dt, b, c) = (&x[wide.clone()], &dt[wide.clone()], &b[narrow.clone()], &c[narrow]);
            let input = SelectiveInputs { x, dt, b, c };
            scan.run(self.set, self.pool, &input, states.carry(&run), &mut out[wide])?;
        }
        Ok(())
    }

    pub(super) fn ssd(
        &mut self,
        state: StateId,
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
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            let (xbc, dt) = (&xbc[rows(&run, ssd.width())], &dt[rows(&run, n_head)]);
            let out = &mut out[rows(&run, n_head * d_head)];
            ssd.run(self.set, self.pool, xbc, dt, states.carry(&run), out)?;
        }
        Ok(())
    }
}
