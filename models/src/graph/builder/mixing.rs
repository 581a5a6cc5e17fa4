//! Operations that mix tokens without attention, and what they need around them.

use super::{Builder, Linear};
use crate::{
    error::Error,
    graph::{
        Activation, Columns, DeltaParams, Mix, Op, RopeId, Rows, Value, WeightRow, WeightShape, Wkv6Params,
        Wkv7Params,
    },
    weights::packed_type,
};
use alloc::format;

impl Builder<'_, '_> {
    /// Row `row` of the vector `name` of `n_rows` rows as wide as the value `x`.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn vector_row(
        &mut self,
        name: &str,
        x: Value,
        n_rows: usize,
        row: usize,
    ) -> Result<WeightRow, Error> {
        let weight = self.vector(name, n_rows.saturating_mul(self.graph.width(x)))?;
        Ok(WeightRow { weight, row })
    }

    /// The vector `name` as a matrix of one row, as wide as the value `x`.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn row(&mut self, name: &str, x: Value) -> Result<Linear, Error> {
        let (tensor, info) = self.tensor(name)?;
        let n_cols = self.graph.width(x);
        if info.n_elements() != n_cols {
            info.expect_shape(&[n_cols])?;
        }
        let shape = WeightShape::Matrix { rows: 0..1, n_cols, kind: packed_type(&info)? };
        Ok(Linear { weight: self.add_weight(tensor, shape), bias: None, n_rows: 1 })
    }

    /// The `N` matrices `[n_rows, n_cols]` of the tensor `name`.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn stacked<const N: usize>(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<[Linear; N], Error> {
        let (tensor, info) = self.tensor(name)?;
        info.expect_shape(&[N, n_rows, n_cols])?;
        let kind = packed_type(&info)?;
        Ok(core::array::from_fn(|i| {
            let shape = WeightShape::Matrix { rows: i * n_rows..(i + 1) * n_rows, n_cols, kind };
            Linear { weight: self.add_weight(tensor.clone(), shape), bias: None, n_rows }
        }))
    }

    /// `x` times a matrix of low rank: `NAMES.0.weight`, then `activation`, then `NAMES.1.weight` of `n_rows` rows.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn low_rank(
        &mut self,
        x: Value,
        names: [&'static str; 2],
        activation: Activation,
        n_rows: usize,
    ) -> Result<Value, Error> {
        let (_, info) = self.tensor(&format!("{}.weight", names[0]))?;
        let (n_embd, rank) = (self.graph.width(x), info.shape().first().copied().unwrap_or(1));
        let down = self.linear(names[0], rank, n_embd)?;
        let [middle] = self.linears(x, [down], [names[0]]);
        self.activate(activation, middle);
        let up = self.linear(names[1], n_rows, rank)?;
        let [out] = self.linears(middle, [up], [names[1]]);
        Ok(out)
    }

    /// `x +=` the vector `name`, row by row.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn bias(&mut self, x: Value, name: &str) -> Result<(), Error> {
        let bias = self.vector(name, self.graph.width(x))?;
        self.push(Op::Bias { x, bias });
        Ok(())
    }

    /// Keeps the pairs of dimensions for which `still` holds from turning.
    pub fn hold_still(&mut self, rope: RopeId, still: impl Fn(usize) -> bool) {
        let frequencies = self.graph.ropes.get_mut(rope.0 as usize).map(|rope| rope.frequencies.iter_mut());
        for (_, frequency) in frequencies.into_iter().flatten().enumerate().filter(|(pair, _)| still(*pair)) {
            *frequency = 0.0;
        }
    }

    /// `x *= factor`.
    pub fn scale(&mut self, x: Value, factor: f32) {
        self.push(Op::Scale { x, factor });
    }

    /// `x + (y - x) * mix`.
    pub fn lerp(&mut self, name: &'static str, x: Value, y: Value, mix: Mix) -> Value {
        let out = self.value(name, self.graph.width(x), self.rows(x));
        self.push(Op::Lerp { x, y, mix, out });
        out
    }

    /// Some columns of every group of columns of `x`.
    pub fn columns(&mut self, name: &'static str, x: Value, columns: Columns) -> Value {
        let width = self.graph.width(x) / columns.group.max(1) * columns.n;
        let out = self.value(name, width, self.rows(x));
        self.push(Op::Columns { x, columns, out });
        out
    }

    /// For each token the row of `x` of the token before, from the layer's state.
    pub fn shift(&mut self, x: Value) -> Value {
        let width = self.graph.width(x);
        let out = self.value("before", width, Rows::Tokens);
        let state = self.state(width, &[x]);
        self.push(Op::Shift { state, x, out });
        out
    }

    /// The recurrence of RWKV 6 with the layer's state, over receptance, decay, keys and values.
    pub fn wkv6(&mut self, rwkv: [Value; 4], params: Wkv6Params) -> Value {
        let (width, [_, w, k, v]) = (params.n_head * params.d_head, rwkv);
        let out = self.value("wkv", width, Rows::Tokens);
        let state = self.state(width * params.d_head, &[w, k, v]);
        self.push(Op::Wkv6 { state, rwkv, out, params });
        out
    }

    /// The recurrence of RWKV 7 with the layer's state, over receptance, decay, keys, values and the rate of learning.
    pub fn wkv7(&mut self, rwkva: [Value; 5], params: Wkv7Params) -> Value {
        let (width, [_, w, k, v, a]) = (params.n_head * params.d_head, rwkva);
        let out = self.value("wkv", width, Rows::Tokens);
        let state = self.state(width * params.d_head, &[w, k, v, a]);
        self.push(Op::Wkv7 { state, rwkva, out, params });
        out
    }

    /// The gated delta rule with the layer's state, over queries, keys and values side by side, how much is learned, and how
    /// much is forgotten.
    pub fn delta(&mut self, [qkv, beta, alpha]: [Value; 3], params: DeltaParams) -> Value {
        let width = params.n_head * params.d_v;
        let out = self.value("delta", width, Rows::Tokens);
        let state = self.state(width * params.d_k, &[qkv, beta, alpha]);
        self.push(Op::Delta { state, qkv, beta, alpha, out, params });
        out
    }
}
