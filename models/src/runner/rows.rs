//! Steps that treat every row by itself; many rows are shared out over the threads.

use super::Frame;
use crate::{
    context::Outputs,
    error::Error,
    graph::{Activation, RopeId, RowOf, Value, WeightId},
};
use backstitch_core::pool::{Parts, Pool, n_jobs};
use backstitch_kv::Ubatch;

/// Fewer floats than this are done sooner by one thread than handed to a second.
const LEAST: usize = 16_384;

/// Calls `f` with pieces of whole rows of `x`, `[n_rows, width]`, and the number of each piece's first row.
pub(super) fn each_piece(
    pool: &dyn Pool,
    x: &mut [f32],
    width: usize,
    f: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<(), Error> {
    let jobs = n_jobs(pool, x.len(), LEAST);
    if jobs == 1 {
        f(0, x);
        return Ok(());
    }
    let parts = Parts::new(x, width.max(1), jobs);
    let piece = |job| {
        if let Some((start, part)) = parts.take(job) {
            f(start / width.max(1), part);
        }
    };
    Ok(pool.run(jobs, &piece)?)
}

impl Frame<'_> {
    pub(super) fn embed(
        &mut self,
        table: WeightId,
        (by, scale): (RowOf, f32),
        out: Value,
        ubatch: &Ubatch<'_>,
    ) -> Result<(), Error> {
        let table = self.weights.matrix(table, 0)?;
        let width = self.values.width(out);
        let [out] = self.values.slices([out])?;
        for (i, (row, token)) in out.chunks_exact_mut(width).zip(ubatch.tokens()).enumerate() {
            match (by, ubatch.embedding(i)) {
                (RowOf::Token, Some(embedding)) if embedding.len() == width => {
                    row.copy_from_slice(embedding);
                    continue;
                }
                (RowOf::Token, Some(embedding)) => {
                    let found = embedding.len() as u64;
                    return Err(Error::Params { what: "width of an embedding", found, wanted: "n_embd" });
                }
                (RowOf::Token, None) => table.decode_row(token.token.0 as usize, row)?,
                (RowOf::Position, _) if token.pos.0 as usize >= table.n_rows() => {
                    return Err(Error::BeyondPositions { pos: token.pos.0, n_pos: table.n_rows() });
                }
                (RowOf::Position, _) => table.decode_row(token.pos.0 as usize, row)?,
                (RowOf::First, _) => table.decode_row(0, row)?,
            }
            if scale != 1.0 {
                (self.set.scale_in_place)(row, scale);
            }
        }
        Ok(())
    }

    pub(super) fn angles(&mut self, rope: RopeId, out: Value, ubatch: &Ubatch<'_>) -> Result<(), Error> {
        let rotation = &self.ropes[rope.0 as usize];
        let width = self.values.width(out);
        let [out] = self.values.slices([out])?;
        for (row, token) in out.chunks_exact_mut(width.max(1)).zip(ubatch.tokens()) {
            rotation.rope.angles(&rotation.frequencies, token.pos.0, row)?;
        }
        Ok(())
    }

    pub(super) fn rms_norm(
        &mut self,
        x: Value,
        weight: Option<WeightId>,
        eps: f32,
        group: usize,
        out: Value,
    ) -> Result<(), Error> {
        let weight = weight.map_or(&[][..], |weight| self.weights.vector(weight));
        let (set, width) = (self.set, self.values.width(x));
        if x == out {
            let [x] = self.values.slices([x])?;
            let norm = set.rms_norm_in_place;
            return each_piece(self.pool, x, width, |_, rows| norm(rows, group, weight, eps));
        }
        let [x, out] = self.values.slices([x, out])?;
        let x = &*x;
        each_piece(self.pool, out, width, |first, rows| {
            let x = &x[first * width..first * width + rows.len()];
            (set.rms_norm)(x, group, weight, eps, rows);
        })
    }

    pub(super) fn layer_norm(
        &mut self,
        x: Value,
        weight: WeightId,
        bias: Option<WeightId>,
        eps: f32,
        out: Value,
    ) -> Result<(), Error> {
        let weight = self.weights.vector(weight);
        let bias = bias.map_or(&[][..], |bias| self.weights.vector(bias));
        let (norm, width) = (self.set.layer_norm_in_place, self.values.width(x));
        if x == out {
            let [x] = self.values.slices([x])?;
            return each_piece(self.pool, x, width, |_, rows| norm(rows, width, weight, bias, eps));
        }
        let [x, out] = self.values.slices([x, out])?;
        let x = &*x;
        each_piece(self.pool, out, width, |first, rows| {
            rows.copy_from_slice(&x[first * width..first * width + rows.len()]);
            norm(rows, width, weight, bias, eps);
        })
    }

    pub(super) fn bias(&mut self, x: Value, bias: WeightId) -> Result<(), Error> {
        let bias = self.weights.vector(bias);
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, bias.len(), |_, rows| {
            for row in rows.chunks_exact_mut(bias.len().max(1)) {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
        })
    }

    pub(super) fn rotate(
        &mut self,
        x: Value,
        angles: Value,
        rope: RopeId,
        n_head: usize,
    ) -> Result<(), Error> {
        let (rotate, pairs) = (self.set.rotate, self.ropes[rope.0 as usize].rope.pairs);
        let (width, n_angles) = (self.values.width(x), self.values.width(angles));
        let [x, angles] = self.values.slices([x, angles])?;
        let angles = &*angles;
        each_piece(self.pool, x, width, |first, rows| {
            let angles = angles[first * n_angles..].chunks_exact(n_angles.max(1));
            for (row, angles) in rows.chunks_exact_mut(width.max(1)).zip(angles) {
                rotate(row, width / n_head.max(1), pairs, angles);
            }
        })
    }

    pub(super) fn activate(&mut self, activation: Activation, x: Value) -> Result<(), Error> {
        let kernel = match activation {
            Activation::Silu => self.set.silu_in_place,
            Activation::Gelu => self.set.gelu_in_place,
            Activation::Relu => self.set.relu_in_place,
            Activation::SquaredRelu => self.set.squared_relu_in_place,
            Activation::Sigmoid => self.set.sigmoid_in_place,
            Activation::Tanh => self.set.tanh_in_place,
            Activation::Identity => return Ok(()),
        };
        let width = self.values.width(x);
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| kernel(rows))
    }

    pub(super) fn gate(&mut self, activation: Activation, gate: Value, up: Value) -> Result<(), Error> {
        let kernel = match activation {
            Activation::Silu => self.set.mul_silu,
            Activation::Gelu => self.set.mul_gelu,
            Activation::Relu => self.set.mul_relu,
            Activation::SquaredRelu => self.set.mul_squared_relu,
            Activation::Sigmoid => self.set.mul_sigmoid,
            Activation::Tanh => self.set.mul_tanh,
            Activation::Identity => self.set.mul,
        };
        let (width, gate_width) = (self.values.width(up), self.values.width(gate));
        let [gate, up] = self.values.slices([gate, up])?;
        let gate = &*gate;
        if gate_width == 1 {
            let scale = self.set.scale_in_place;
            return each_piece(self.pool, up, width, |first, rows| {
                for (row, gate) in rows.chunks_exact_mut(width.max(1)).zip(&gate[first..]) {
                    let mut factor = [1.0];
                    kernel(&mut factor, core::slice::from_ref(gate));
                    scale(row, factor[0]);
                }
            });
        }
        each_piece(self.pool, up, width, |first, rows| {
            let start = first * width;
            kernel(rows, &gate[start..start + rows.len()]);
        })
    }

    pub(super) fn add(&mut self, x: Value, y: Value) -> Result<(), Error> {
        let width = self.values.width(x);
        let [x, y] = self.values.slices([x, y])?;
        let y = &*y;
        each_piece(self.pool, x, width, |first, rows| {
            rows.iter_mut().zip(&y[first * width..]).for_each(|(x, y)| *x += y);
        })
    }

    pub(super) fn mul(&mut self, x: Value, y: Value) -> Result<(), Error> {
        let (width, mul) = (self.values.width(x), self.set.mul);
        let [x, y] = self.values.slices([x, y])?;
        let y = &*y;
        each_piece(self.pool, x, width, |first, rows| mul(rows, &y[first * width..]))
    }

    pub(super) fn outputs(&mut self, x: Value, out: Value) -> Result<(), Error> {
        let (width, wanted) = (self.values.width(x).max(1), self.wanted);
        let [x, out] = self.values.slices([x, out])?;
        for (row, &i) in out.chunks_exact_mut(width).zip(wanted) {
            let start = i as usize * width;
            row.copy_from_slice(&x[start..start + width]);
        }
        Ok(())
    }

    /// Embeddings of the wanted tokens, into the caller's rows.
    pub(super) fn embeddings(
        &mut self,
        x: Value,
        ubatch: &Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let (width, wanted) = (self.values.width(x).max(1), self.wanted);
        let [x] = self.values.slices([x])?;
        for (x, &i) in x.chunks_exact(width).zip(wanted) {
            let token = ubatch.tokens().get(i as usize).ok_or(Error::Arena)?;
            let row = outputs.row_number(token.index as usize).ok_or(Error::Arena)?;
            let out = outputs.rows_mut().get_mut(row * width..(row + 1) * width).ok_or(Error::Arena)?;
            out.copy_from_slice(x);
        }
        Ok(())
    }
}
