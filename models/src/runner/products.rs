//! Products of activations with weight matrices.

use super::adapt::{Read, Target};
use super::frame::Frame;
use super::outputs::Outputs;
use super::rows::each_piece;
use crate::{
    error::Error,
    graph::{Rows, Step, Value, WeightId},
};
use backstitch_core::{
    KernelSet,
    matmul::{Input, Product, Write, matmul},
    packed::Packed,
    pool::Pool,
    quantized::{Quantized, quantize},
};
use backstitch_kv::Ubatch;

/// Products that the kernel computes in one go. Architectures rarely ask for more.
const AT_ONCE: usize = 3;

/// Return the rows of `x`, floats or the blocks that [`Frame::quantize`] made of them, as the input
/// that `weights` take.
fn input<'x>(x: &'x [f32], weights: &Packed<'_>) -> Result<Input<'x>, Error> {
    let n_cols = weights.n_cols();
    match weights.kind().takes_quantized() {
        true => Ok(Input::quantized(Quantized::new(n_cols, bytemuck::cast_slice(x))?)),
        false => Ok(Input::floats(x, n_cols)?),
    }
}

/// Return floats `x` as the input that `weights` take, quantised into `room` if need be.
pub(super) fn input_of<'r>(
    set: &'static KernelSet,
    pool: &dyn Pool,
    x: &'r [f32],
    weights: &Packed<'_>,
    room: &'r mut [f32],
) -> Result<Input<'r>, Error> {
    let n_cols = weights.n_cols();
    match weights.kind().takes_quantized() {
        true => Ok(Input::quantized(quantize(set, pool, x, n_cols, bytemuck::cast_slice_mut(room))?)),
        false => Ok(Input::floats(x, n_cols)?),
    }
}

impl Frame<'_> {
    /// Round rows to blocks of 8-bit integers, for the products that follow.
    pub(super) fn quantize(&mut self, step: &Step) -> Result<(), Error> {
        let ([x], [out]) = (step.reads()?, step.writes()?);
        let n_cols = self.values.width(x);
        let [x, out] = self.values.slices([x, out])?;
        quantize(self.set, self.pool, x, n_cols, bytemuck::cast_slice_mut(out))?;
        Ok(())
    }

    /// Multiply one input by one or more matrices. The kernel shares out all of their panels at
    /// once, so small matrices side by side keep all threads busy.
    pub(super) fn matmul(&mut self, step: &Step, add: bool) -> Result<(), Error> {
        let refused = Error::Operands { operation: step.name };
        let &x = step.reads.first().ok_or(refused)?;
        let write = if add { Write::Add } else { Write::Store };
        let (weights, outs) = (step.weights.chunks(AT_ONCE), step.writes.chunks(AT_ONCE));
        weights.zip(outs).try_for_each(|(weights, outs)| self.matmul_few(x, weights, outs, write))?;
        if self.adapters.is_any { self.adapt_products(step) } else { Ok(()) }
    }

    /// Multiply by up to [`AT_ONCE`] matrices.
    fn matmul_few(
        &mut self,
        x: Value,
        weights: &[WeightId],
        outs: &[Value],
        write: Write,
    ) -> Result<(), Error> {
        // Products that are not there get an empty output, and are left out again below.
        let range = |i: usize| outs.get(i).map_or(0..0, |&out| self.values.range(out));
        let ranges = [self.values.range(x), range(0), range(1), range(2)];
        let matrix = |i: usize| self.weights.matrix(weights.get(i).copied().unwrap_or(weights[0]), 0);
        let matrices: [Packed<'_>; AT_ONCE] = [matrix(0)?, matrix(1)?, matrix(2)?];
        let [x, outs @ ..] = self.values.arena.get_disjoint_mut(ranges).map_err(|_| Error::Arena)?;
        let input = input(x, &matrices[0])?;
        let [a, b, c] = outs;
        let product = |i: usize, out| Product { weights: matrices[i], out, write };
        let mut products = [product(0, a), product(1, b), product(2, c)];
        Ok(matmul(self.set, self.pool, input, &mut products[..weights.len()])?)
    }

    /// Multiply each head of the rows by its own matrix. The heads are gathered first: a product
    /// wants rows that lie one behind the other.
    pub(super) fn matmul_heads(&mut self, step: &Step, n_head: usize) -> Result<(), Error> {
        let ([x], [out, room], [id]) = (step.reads()?, step.writes()?, step.weights()?);
        let [x_width, width] = [x, out].map(|value| self.values.width(value));
        let (n_in, n_out) = (x_width / n_head, width / n_head);
        let token = self.adapters.who.tokens(self.values.graph.info(out).rows);
        let [x, out, room] = self.values.slices([x, out, room])?;
        let n_tokens = x.len() / x_width.max(1);
        let (rows, rest) = room.split_at_mut_checked(n_tokens * n_in).ok_or(Error::Arena)?;
        let (result, blocks) = rest.split_at_mut_checked(n_tokens * n_out).ok_or(Error::Arena)?;
        for head in 0..n_head {
            for (row, x) in rows.chunks_exact_mut(n_in).zip(x.chunks_exact(x_width)) {
                row.copy_from_slice(&x[head * n_in..][..n_in]);
            }
            let weights = self.weights.matrix(id, head)?;
            let input = input_of(self.set, self.pool, rows, &weights, blocks)?;
            let mut products = [Product { weights, out: &mut *result, write: Write::Store }];
            matmul(self.set, self.pool, input, &mut products)?;
            if self.adapters.is_any {
                let mut adding = self.adapters.adding(self.set, self.pool);
                let x = Read::Floats(&*rows);
                let target = Target { id, matrix: head, x, n_in, out: &mut *result, n_out };
                adding.add(target, &token)?;
            }
            for (out, row) in out.chunks_exact_mut(width).zip(result.chunks_exact(n_out)) {
                out[head * n_out..][..n_out].copy_from_slice(row);
            }
        }
        Ok(())
    }

    /// Compute the scores of the vocabulary straight into the context's rows: one product for each
    /// stretch of neighbouring rows.
    pub(super) fn logits(
        &mut self,
        step: &Step,
        soft_cap: Option<f32>,
        ubatch: &Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let ([x], [room]) = (step.reads()?, step.writes()?);
        let (&id, bias) = step.weights.split_first().ok_or(Error::Operands { operation: step.name })?;
        let bias = bias.first().map(|&bias| self.weights.vector(bias)).transpose()?;
        let head = self.weights.matrix(id, 0)?;
        let (width, n_vocab, wanted) = (self.values.width(x), head.n_rows(), self.wanted);
        let token = self.adapters.who.tokens(Rows::Outputs);
        let [x, room] = self.values.slices([x, room])?;
        let row_of = |outputs: &Outputs, i: usize| {
            let token = ubatch.tokens().get(*wanted.get(i)? as usize)?;
            outputs.row_number(token.index as usize)
        };
        let mut first = 0;
        while let Some(row) = row_of(outputs, first) {
            let n = (1..).take_while(|n| row_of(outputs, first + n) == Some(row + n)).count() + 1;
            let x = &x[first * width..(first + n) * width];
            let out = outputs.rows_mut().get_mut(row * n_vocab..(row + n) * n_vocab).ok_or(Error::Arena)?;
            let mut products = [Product { weights: head, out, write: Write::Store }];
            let input = input_of(self.set, self.pool, x, &head, room)?;
            matmul(self.set, self.pool, input, &mut products)?;
            let [Product { out, .. }] = products;
            if self.adapters.is_any {
                let mut adding = self.adapters.adding(self.set, self.pool);
                let x = Read::Floats(x);
                let target = Target { id, matrix: 0, x, n_in: width, out: &mut *out, n_out: n_vocab };
                adding.add(target, |row| token(first + row))?;
            }
            if let Some(bias) = bias {
                out.chunks_exact_mut(n_vocab.max(1)).for_each(|row| (self.set.add)(row, bias));
            }
            if let Some(soft_cap) = soft_cap {
                let cap = self.set.soft_cap_in_place;
                each_piece(self.pool, out, n_vocab, |_, rows| cap(rows, soft_cap))?;
            }
            first += n;
        }
        Ok(())
    }
}
