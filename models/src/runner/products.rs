//! Products of activations with weight matrices.

use super::{Frame, rows::each_piece};
use crate::{
    context::Outputs,
    error::Error,
    graph::{self, Value, WeightId},
};
use backstitch_core::{
    KernelSet,
    matmul::{Input, Product, Write, matmul},
    packed::Packed,
    pool::Pool,
    quantized::{Quantized, quantize},
};
use backstitch_kv::Ubatch;

/// Products taken from the arena in one go; architectures ask for no more.
const AT_ONCE: usize = 3;

/// The rows of `x`, floats or what [`Frame::quantize`] made of them, as the input that `weights` take.
fn input<'x>(x: &'x [f32], weights: &Packed<'_>) -> Result<Input<'x>, Error> {
    let n_cols = weights.n_cols();
    match weights.kind().takes_quantized() {
        true => Ok(Input::quantized(Quantized::new(n_cols, bytemuck::cast_slice(x))?)),
        false => Ok(Input::floats(x, n_cols)?),
    }
}

/// Floats `x` as the input that `weights` take, quantised into `room` if need be.
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
    pub(super) fn quantize(&mut self, x: Value, out: Value) -> Result<(), Error> {
        let n_cols = self.values.width(x);
        let [x, out] = self.values.slices([x, out])?;
        quantize(self.set, self.pool, x, n_cols, bytemuck::cast_slice_mut(out))?;
        Ok(())
    }

    pub(super) fn matmul(&mut self, x: Value, products: &[graph::Product]) -> Result<(), Error> {
        products.chunks(AT_ONCE).try_for_each(|products| self.matmul_few(x, products))
    }

    fn matmul_few(&mut self, x: Value, products: &[graph::Product]) -> Result<(), Error> {
        // What there is less than `AT_ONCE` of gets an empty output, and is left out again below.
        let range = |i: usize| products.get(i).map_or(0..0, |p| self.values.range(p.out));
        let ranges = [self.values.range(x), range(0), range(1), range(2)];
        let weights = |i: usize| self.weights.matrix(products.get(i).unwrap_or(&products[0]).weight, 0);
        let weights: [Packed<'_>; AT_ONCE] = [weights(0)?, weights(1)?, weights(2)?];
        let [x, outs @ ..] = self.values.arena.get_disjoint_mut(ranges).map_err(|_| Error::Arena)?;
        let mut i = 0;
        let mut tasks = outs.map(|out| {
            let add = products.get(i).is_some_and(|p| p.add);
            let write = if add { Write::Add } else { Write::Store };
            i += 1;
            Product { weights: weights[i - 1], out, write }
        });
        let input = input(x, &weights[0])?;
        Ok(matmul(self.set, self.pool, input, &mut tasks[..products.len()])?)
    }

    /// Scores of the vocabulary, straight into the caller's rows: one product for each run of neighbouring rows. `values`
    /// are the activations and room for them quantised.
    pub(super) fn logits(
        &mut self,
        values: [Value; 2],
        head: WeightId,
        soft_cap: f32,
        ubatch: &Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let head = self.weights.matrix(head, 0)?;
        let (width, n_vocab, wanted) = (self.values.width(values[0]), head.n_rows(), self.wanted);
        let [x, room] = self.values.slices(values)?;
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
            if soft_cap != 0.0 {
                let [Product { out, .. }] = products;
                let cap = self.set.soft_cap_in_place;
                each_piece(self.pool, out, n_vocab, |_, rows| cap(rows, soft_cap))?;
            }
            first += n;
        }
        Ok(())
    }
}
