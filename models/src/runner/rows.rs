//! Steps that treat every row by itself. The threads share many rows; few are one thread's.

use super::frame::Frame;
use super::outputs::Outputs;
use crate::{
    error::Error,
    graph::{Activation, RopeId, RowOf, Step, Temperature},
};
use backstitch_core::{
    KernelSet,
    pool::{Parts, Pool, n_jobs},
};
use backstitch_kv::Ubatch;

/// One thread is done with fewer floats than this sooner than it could hand some to a second.
const LEAST: usize = 16_384;

/// Call `f` with pieces of whole rows of `x`, `[n_rows, width]`, and the number of each piece's
/// first row.
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

/// Return the kernel that applies a function to each number.
pub(super) fn activation_kernel(set: &KernelSet, activation: Activation) -> fn(&mut [f32]) {
    match activation {
        Activation::Silu => set.silu_in_place,
        Activation::Gelu => set.gelu_in_place,
        Activation::Relu => set.relu_in_place,
        Activation::SquaredRelu => set.squared_relu_in_place,
        Activation::Sigmoid => set.sigmoid_in_place,
        Activation::Tanh => set.tanh_in_place,
        Activation::Identity => |_| (),
    }
}

/// Return the kernel that multiplies numbers by a function of their gates.
pub(super) fn gate_kernel(set: &KernelSet, activation: Activation) -> fn(&mut [f32], &[f32]) {
    match activation {
        Activation::Silu => set.mul_silu,
        Activation::Gelu => set.mul_gelu,
        Activation::Relu => set.mul_relu,
        Activation::SquaredRelu => set.mul_squared_relu,
        Activation::Sigmoid => set.mul_sigmoid,
        Activation::Tanh => set.mul_tanh,
        Activation::Identity => set.mul,
    }
}

impl Frame<'_> {
    /// Copy the rows of a table that the tokens get.
    pub(super) fn embed(
        &mut self,
        step: &Step,
        by: RowOf,
        scale: f32,
        ubatch: &Ubatch<'_>,
    ) -> Result<(), Error> {
        let ([id], [out]) = (step.weights()?, step.writes()?);
        let table = self.weights.matrix(id, 0)?;
        let width = self.values.width(out);
        let [out] = self.values.slices([out])?;
        for (i, (row, token)) in out.chunks_exact_mut(width).zip(ubatch.tokens()).enumerate() {
            let mut number = 0;
            match (by, ubatch.embedding(i)) {
                (RowOf::Token, Some(embedding)) if embedding.len() == width => {
                    row.copy_from_slice(embedding);
                    continue;
                }
                (RowOf::Token, Some(embedding)) => {
                    let found = embedding.len() as u64;
                    return Err(Error::Params { what: "width of an embedding", found, wanted: "n_embd" });
                }
                (RowOf::Token | RowOf::TokenOrFirst, None) => {
                    number = token.token.0 as usize;
                    table.decode_row(number, row)?
                }
                (RowOf::Position, _) if token.pos.0 as usize >= table.n_rows() => {
                    return Err(Error::BeyondPositions { pos: token.pos.0, n_pos: table.n_rows() });
                }
                (RowOf::Position, _) => table.decode_row(token.pos.0 as usize, row)?,
                (RowOf::First | RowOf::TokenOrFirst, _) => table.decode_row(0, row)?,
            }
            if scale != 1.0 {
                (self.set.scale_in_place)(row, scale);
            }
            if self.adapters.is_any && matches!(by, RowOf::Token | RowOf::TokenOrFirst) {
                self.adapters.adding(self.set, self.pool).embed(id, number, scale, i, row)?;
            }
        }
        Ok(())
    }

    /// Compute a row of cosines and sines for each token: once a ubatch, for the layers of all
    /// heads.
    pub(super) fn angles(&mut self, step: &Step, rope: RopeId, ubatch: &Ubatch<'_>) -> Result<(), Error> {
        let [out] = step.writes()?;
        let rotation = &self.rotations[rope.0 as usize];
        let width = self.values.width(out);
        let [out] = self.values.slices([out])?;
        for (row, token) in out.chunks_exact_mut(width.max(1)).zip(ubatch.tokens()) {
            rotation.rope.angles(&rotation.frequencies, token.pos.0, row)?;
        }
        Ok(())
    }

    /// Normalise groups of columns by their root mean square, in place or into another value.
    pub(super) fn rms_norm(&mut self, step: &Step, eps: f32, group: usize) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let weight = match step.weights.first() {
            Some(&weight) => self.weights.vector(weight)?,
            None => &[],
        };
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

    /// Normalise rows to mean 0 and variance 1, in place or into another value. The kernel works in
    /// place, so rows are copied first.
    pub(super) fn layer_norm(&mut self, step: &Step, eps: f32, group: usize) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        // None of both, or a weight and perhaps a bias.
        let (weight, bias): (&[f32], &[f32]) = match step.weights.is_empty() {
            true => (&[], &[]),
            false => self.weight_and_bias(step)?,
        };
        let (norm, width) = (self.set.layer_norm_in_place, self.values.width(x));
        if x == out {
            let [x] = self.values.slices([x])?;
            return each_piece(self.pool, x, width, |_, rows| norm(rows, group, weight, bias, eps));
        }
        let [x, out] = self.values.slices([x, out])?;
        let x = &*x;
        each_piece(self.pool, out, width, |first, rows| {
            rows.copy_from_slice(&x[first * width..first * width + rows.len()]);
            norm(rows, group, weight, bias, eps);
        })
    }

    /// Add a vector, or columns of one, to each row.
    pub(super) fn bias(&mut self, step: &Step, first: usize) -> Result<(), Error> {
        let ([x], [bias]) = (step.writes()?, self.vectors(step)?);
        let width = self.values.width(x);
        let bias = bias.get(first..first + width).ok_or(Error::Operands { operation: step.name })?;
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| {
            for row in rows.chunks_exact_mut(width.max(1)) {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
        })
    }

    /// Rotate the heads of each row by its token's angles.
    pub(super) fn rotate(&mut self, step: &Step, rope: RopeId, n_head: usize) -> Result<(), Error> {
        let [x, angles] = step.reads()?;
        let (rotate, pairs) = (self.set.rotate, self.rotations[rope.0 as usize].rope.pairs);
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

    /// Apply a function to each number.
    pub(super) fn activate(&mut self, step: &Step, activation: Activation) -> Result<(), Error> {
        let [x] = step.writes()?;
        let kernel = activation_kernel(self.set, activation);
        let width = self.values.width(x);
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| kernel(rows))
    }

    /// Multiply by a function of the gate. A gate of one column is a factor for the whole row.
    pub(super) fn gate(&mut self, step: &Step, activation: Activation) -> Result<(), Error> {
        let [gate, up] = step.reads()?;
        let kernel = gate_kernel(self.set, activation);
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

    /// Add a value to another.
    pub(super) fn add(&mut self, step: &Step) -> Result<(), Error> {
        let [x, y] = step.reads()?;
        let width = self.values.width(x);
        let [x, y] = self.values.slices([x, y])?;
        let y = &*y;
        each_piece(self.pool, x, width, |first, rows| {
            rows.iter_mut().zip(&y[first * width..]).for_each(|(x, y)| *x += y);
        })
    }

    /// Multiply a value by another, element by element.
    pub(super) fn mul(&mut self, step: &Step) -> Result<(), Error> {
        let [x, y] = step.reads()?;
        let (width, mul) = (self.values.width(x), self.set.mul);
        let [x, y] = self.values.slices([x, y])?;
        let y = &*y;
        each_piece(self.pool, x, width, |first, rows| mul(rows, &y[first * width..]))
    }

    /// Multiply all numbers by a constant, or by the number that a weight holds.
    pub(super) fn scale(&mut self, step: &Step, factor: f32) -> Result<(), Error> {
        let [x] = step.writes()?;
        let factor = match step.weights.first() {
            Some(&weight) => factor * self.weights.vector(weight)?.first().copied().unwrap_or(1.0),
            None => factor,
        };
        let (scale, width) = (self.set.scale_in_place, self.values.width(x));
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| scale(rows, factor))
    }

    /// Multiply each row by a factor of its token's position.
    pub(super) fn scale_by_position(
        &mut self,
        step: &Step,
        temperature: Temperature,
        ubatch: &Ubatch<'_>,
    ) -> Result<(), Error> {
        let [x] = step.writes()?;
        let (scale, width) = (self.set.scale_in_place, self.values.width(x).max(1));
        let [x] = self.values.slices([x])?;
        for (row, token) in x.chunks_exact_mut(width).zip(ubatch.tokens()) {
            let floor =
                libm::floorf((token.pos.0 as f32 + temperature.offset) / temperature.floor_scale as f32);
            scale(row, libm::logf(floor + 1.0) * temperature.scale + 1.0);
        }
        Ok(())
    }

    /// Keep all numbers within a limit. NaN stays NaN, so that it reaches the outputs, where it is
    /// noticed: `f32::max` and `f32::min` would make a number of it.
    pub(super) fn clamp(&mut self, step: &Step, limit: f32) -> Result<(), Error> {
        let [x] = step.writes()?;
        let width = self.values.width(x);
        let [x] = self.values.slices([x])?;
        each_piece(self.pool, x, width, |_, rows| {
            for x in rows {
                *x = if *x < -limit { -limit } else { *x };
                *x = if *x > limit { limit } else { *x };
            }
        })
    }

    /// Take the columns of two values in turns.
    pub(super) fn join(&mut self, step: &Step, n_groups: usize, n_x: usize) -> Result<(), Error> {
        let ([x, y], [out]) = (step.reads()?, step.writes()?);
        let [x_width, y_width, width] = [x, y, out].map(|value| self.values.width(value));
        let n = width / n_groups;
        let n_y = n - n_x;
        // Each group has columns of its own, or all the same.
        let x_step = if x_width == n_groups * n_x { n_x } else { 0 };
        let y_step = if y_width == n_groups * n_y { n_y } else { 0 };
        let [x, y, out] = self.values.slices([x, y, out])?;
        let (x, y) = (&*x, &*y);
        each_piece(self.pool, out, width, |first, rows| {
            for (i, row) in rows.chunks_exact_mut(width).enumerate() {
                let (x, y) = (&x[(first + i) * x_width..], &y[(first + i) * y_width..]);
                for (group, out) in row.chunks_exact_mut(n).enumerate() {
                    out[..n_x].copy_from_slice(&x[group * x_step..][..n_x]);
                    out[n_x..].copy_from_slice(&y[group * y_step..][..n_y]);
                }
            }
        })
    }

    /// Copy the rows of the wanted tokens.
    pub(super) fn select_outputs(&mut self, step: &Step) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let (width, wanted) = (self.values.width(x).max(1), self.wanted);
        let [x, out] = self.values.slices([x, out])?;
        for (row, &i) in out.chunks_exact_mut(width).zip(wanted) {
            let start = i as usize * width;
            row.copy_from_slice(&x[start..start + width]);
        }
        Ok(())
    }

    /// Copy the embeddings of the wanted tokens into the context's rows.
    pub(super) fn embeddings(
        &mut self,
        step: &Step,
        ubatch: &Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let [x] = step.reads()?;
        let (width, wanted) = (self.values.width(x).max(1), self.wanted);
        let [x] = self.values.slices([x])?;
        for (x, &i) in x.chunks_exact(width).zip(wanted) {
            let token = ubatch.tokens().get(i as usize).ok_or(Error::Arena)?;
            let row = outputs.row_number(token.index as usize).ok_or(Error::Arena)?;
            let out = outputs.embeddings_mut().get_mut(row * width..(row + 1) * width).ok_or(Error::Arena)?;
            out.copy_from_slice(x);
        }
        Ok(())
    }
}
