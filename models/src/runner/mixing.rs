//! Steps that mix tokens without attention: RWKV, the gated delta rule, and what they need around them.

use super::{
    Frame,
    recurrent::{rows, states_of},
    rows::each_piece,
};
use crate::{
    error::Error,
    graph::{Columns, DeltaParams, Mix, StateId, Value, WeightRow, Wkv6Params, Wkv7Params},
};
use backstitch_core::scan::{Delta, DeltaInputs, Wkv6, Wkv6Inputs, Wkv7, Wkv7Inputs};
use backstitch_kv::Ubatch;

impl Frame<'_> {
    pub(super) fn shift(
        &mut self,
        state: StateId,
        x: Value,
        out: Value,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let width = self.values.width(x);
        let [x, out] = self.values.slices([x, out])?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
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

    pub(super) fn wkv6(
        &mut self,
        state: StateId,
        [r, w, k, v]: [Value; 4],
        out: Value,
        params: &Wkv6Params,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let Wkv6Params { n_head, d_head, eps, .. } = *params;
        let [first, norm, norm_bias] =
            [params.first, params.norm[0], params.norm[1]].map(|id| self.weights.vector(id));
        let wkv = Wkv6 { n_head, d_head, first, norm, norm_bias, eps };
        let [r, w, k, v, out] = self.values.slices([r, w, k, v, out])?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            let rows = rows(&run, n_head * d_head);
            let [r, w, k, v] = [&*r, &*w, &*k, &*v].map(|x| &x[rows.clone()]);
            let x = Wkv6Inputs { r, w, k, v };
            wkv.run(self.set, self.pool, &x, states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    pub(super) fn wkv7(
        &mut self,
        state: StateId,
        [r, w, k, v, a]: [Value; 5],
        out: Value,
        params: &Wkv7Params,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let Wkv7Params { n_head, d_head, eps, .. } = *params;
        let weights = [params.k_k, params.k_a, params.r_k, params.norm[0], params.norm[1]];
        let [k_k, k_a, r_k, norm, norm_bias] = weights.map(|id| self.weights.vector(id));
        let wkv = Wkv7 { n_head, d_head, k_k, k_a, r_k, norm, norm_bias, eps };
        let [r, w, k, v, a, out] = self.values.slices([r, w, k, v, a, out])?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            let rows = rows(&run, n_head * d_head);
            let [r, w, k, v, a] = [&*r, &*w, &*k, &*v, &*a].map(|x| &x[rows.clone()]);
            let x = Wkv7Inputs { r, w, k, v, a };
            wkv.run(self.set, self.pool, &x, states.carry(&run), &mut out[rows])?;
        }
        Ok(())
    }

    /// `values`: queries, keys and values side by side, how much is learned, how much is forgotten, and the result.
    pub(super) fn delta(
        &mut self,
        state: StateId,
        values: [Value; 4],
        params: &DeltaParams,
        ubatch: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let DeltaParams { n_head, n_head_k, sharing, d_k, d_v, eps, .. } = *params;
        let [dt_bias, a] = [params.dt_bias, params.a].map(|id| self.weights.vector(id));
        let delta = Delta { n_head, n_head_k, sharing, d_k, d_v, dt_bias, a, eps };
        let [qkv, beta, alpha, out] = self.values.slices(values)?;
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
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

    pub(super) fn lerp(&mut self, x: Value, y: Value, mix: Mix, out: Value) -> Result<(), Error> {
        let (lerp, width) = (self.set.lerp, self.values.width(x));
        let row = |WeightRow { weight, row }| {
            self.weights.vector(weight).get(row * width..(row + 1) * width).unwrap_or(&[])
        };
        let weight = mix.weight().map_or(&[][..], row);
        let (x, y, by, out) = match mix.value() {
            Some(by) => {
                let [x, y, by, out] = self.values.slices([x, y, by, out])?;
                (x, y, &*by, out)
            }
            None => {
                let [x, y, out] = self.values.slices([x, y, out])?;
                (x, y, &[][..], out)
            }
        };
        let (x, y) = (&*x, &*y);
        each_piece(self.pool, out, width, |first, rows| {
            let range = first * width..first * width + rows.len();
            let by = by.get(range.clone()).unwrap_or(&[]);
            lerp(&x[range.clone()], &y[range], weight, by, rows);
        })
    }

    pub(super) fn columns(&mut self, x: Value, columns: Columns, out: Value) -> Result<(), Error> {
        let Columns { first, n, group } = columns;
        let [x, out] = self.values.slices([x, out])?;
        for (group, out) in x.chunks_exact(group.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
            out.copy_from_slice(&group[first..first + n]);
        }
        Ok(())
    }

    pub(super) fn scale(&mut self, x: Value, factor: f32) -> Result<(), Error> {
        let (scale, width) = (self.set.scale_in_place, self.values.width(x));
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| scale(rows, factor))
    }
}
