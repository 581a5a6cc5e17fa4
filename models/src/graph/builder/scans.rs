//! Convolutions and state-space recurrences.

use super::Builder;
use crate::{
    error::Error,
    graph::{ConvParams, Op, Rows, SsdParams, Value, WeightShape},
    weights::decodable,
};
use alloc::format;

impl Builder<'_, '_> {
    /// Causal convolution of `x` by the taps `NAME.weight` and, where the file has it, `NAME.bias`; then SiLU if `silu`.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn conv(&mut self, x: Value, name: &str, d_conv: usize, silu: bool) -> Result<Value, Error> {
        let width = self.graph.width(x);
        let (tensor, info) = self.tensor(&format!("{name}.weight"))?;
        info.expect_shape(&[width, d_conv])?;
        decodable(&info)?;
        let taps = self.add_weight(tensor, WeightShape::Columns { n_rows: width, n_cols: d_conv });
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.vector(&bias, width)?) } else { None };
        let out = self.value("conv", width, Rows::Tokens);
        let state = self.state(d_conv.saturating_sub(1) * width, &[x]);
        self.push(Op::Conv { state, x, out, params: ConvParams { taps, bias, silu } });
        Ok(out)
    }

    /// The Mamba-1 recurrence over `x` by time steps, B and C, with the weights `ssm_a` and `ssm_d`.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn selective(&mut self, x: Value, dt: Value, bc: [Value; 2]) -> Result<Value, Error> {
        let (width, d_state) = (self.graph.width(x), self.graph.width(bc[0]));
        let (tensor, info) = self.tensor("ssm_a")?;
        info.expect_shape(&[width, d_state])?;
        decodable(&info)?;
        let a = self.add_weight(tensor, WeightShape::Columns { n_rows: width, n_cols: d_state });
        let d = self.vector("ssm_d", width)?;
        let out = self.value("scan", width, Rows::Tokens);
        let state = self.state(width * d_state, &[x, dt, bc[0]]);
        self.push(Op::Selective { state, x, dt, bc, a, d, out });
        Ok(out)
    }

    /// The Mamba-2 recurrence with the layer's state.
    pub fn ssd(&mut self, xbc: Value, dt: Value, params: SsdParams) -> Value {
        let out = self.value("ssd", params.n_head * params.d_head, Rows::Tokens);
        let state = self.state(params.n_head * params.d_head * params.d_state, &[xbc, dt]);
        self.push(Op::Ssd { state, xbc, dt, out, params });
        out
    }
}
