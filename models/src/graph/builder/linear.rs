//! Products with matrices.

use super::Builder;
use crate::{
    error::Error,
    graph::{
        kind::{Activation, Kind},
        step::Step,
        value::{Value, quantized_width},
        weight::{StackOf, WeightId, WeightShape, packed_type},
    },
};
use alloc::{format, vec::Vec};
use core::ops::Range;

/// A product with the matrix `NAME.weight`, times the number `NAME.scale` and plus the vector
/// `NAME.bias` where the file has them. Ternary weights have the scale, since their format has
/// none, and so have those in NVFP4, whose own scales reach less far.
///
/// The columns are those of the input. Matrices that lie in one tensor, one below the other or
/// stacked in a third dimension, are named by the tensor and their [`Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Name of the tensor, without `.weight`.
    pub name: &'static str,
    /// Name of the result, for people.
    pub result: &'static str,
    /// Rows of the matrix: columns of the result.
    pub n_rows: usize,
    /// The part of the tensor that the matrix is.
    pub cut: Cut,
}

/// The part of a tensor that a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of it.
    Whole,
    /// Rows from `first` on, of a matrix of `of` rows.
    Rows {
        /// The first row.
        first: usize,
        /// Rows of the tensor.
        of: usize,
    },
    /// Matrix `index` of a stack of `of` matrices of this size.
    Stacked {
        /// Its number.
        index: usize,
        /// Matrices in the stack.
        of: usize,
    },
}

impl Linear {
    /// The whole matrix `NAME.weight`.
    pub const fn new(name: &'static str, n_rows: usize) -> Self {
        Linear { name, result: name, n_rows, cut: Cut::Whole }
    }

    /// The matrices that `NAME.weight` holds one below the other, by the names of their results and
    /// their rows.
    pub fn fused<const N: usize>(name: &'static str, parts: [(&'static str, usize); N]) -> [Self; N] {
        let of = parts.iter().map(|(_, n_rows)| n_rows).sum();
        let mut first = 0;
        parts.map(|(result, n_rows)| {
            first += n_rows;
            Linear { name, result, n_rows, cut: Cut::Rows { first: first - n_rows, of } }
        })
    }

    /// Matrix `index` of the `of` matrices of `n_rows` rows that are stacked in `NAME.weight`.
    pub const fn stacked(name: &'static str, n_rows: usize, index: usize, of: usize) -> Self {
        Linear { name, result: name, n_rows, cut: Cut::Stacked { index, of } }
    }

    /// The rows of the matrix in the tensor, all of which has the second number of rows.
    fn rows(&self) -> (Range<usize>, usize) {
        let (first, of) = match self.cut {
            Cut::Whole => (0, self.n_rows),
            Cut::Rows { first, of } => (first, of),
            Cut::Stacked { index, of } => (index * self.n_rows, of * self.n_rows),
        };
        (first..first + self.n_rows, of)
    }
}

/// A product with a matrix of low rank: `up(activation(down(x)))`. The rank is the first matrix's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowRank {
    /// Name of the first matrix, without `.weight`.
    pub down: &'static str,
    /// Name of the second.
    pub up: &'static str,
    /// The function between them.
    pub activation: Activation,
    /// Rows of the second matrix.
    pub n_rows: usize,
}

/// A matrix, its scale and its bias in the graph.
struct Found {
    weight: WeightId,
    scale: Option<WeightId>,
    /// The bias and its first element that is used.
    bias: Option<(WeightId, usize)>,
}

impl Builder<'_, '_> {
    /// Return `x` times a matrix, plus its bias if it has one.
    ///
    /// # Errors
    /// [`Error::MissingTensor`] if the file lacks the tensor, [`Error::Shape`] if it has another
    /// shape, [`Error::NotWeights`] if its type cannot be decoded.
    pub fn linear(&mut self, x: Value, linear: Linear) -> Result<Value, Error> {
        let [out] = self.linears(x, [linear])?;
        Ok(out)
    }

    /// Return `x` times a matrix, without the bias of its name, which an operation adds later.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn unbiased(&mut self, x: Value, linear: Linear) -> Result<Value, Error> {
        let out = self.value(linear.result, linear.n_rows, self.rows(x));
        let found = Found { bias: None, ..self.find(x, &linear)? };
        self.multiply(x, &[(found, out)], false);
        Ok(out)
    }

    /// Return `x` times each of the matrices. One step reads `x` for all of them, which is faster
    /// than a step each.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn linears<const N: usize>(&mut self, x: Value, linears: [Linear; N]) -> Result<[Value; N], Error> {
        let rows = self.rows(x);
        let outs = linears.map(|linear| self.value(linear.result, linear.n_rows, rows));
        let mut found = Vec::with_capacity(N);
        for (linear, out) in linears.iter().zip(outs) {
            found.push((self.find(x, linear)?, out));
        }
        self.multiply(x, &found, false);
        Ok(outs)
    }

    /// Add `x` times the matrix `NAME.weight` (plus its bias) to `residual`, whose width says its
    /// rows.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn add_linear(&mut self, residual: Value, x: Value, name: &'static str) -> Result<(), Error> {
        let found = self.find(x, &Linear::new(name, self.width(residual)))?;
        if found.scale.is_none() {
            self.multiply(x, &[(found, residual)], true);
            return Ok(());
        }
        // The scale is none of what the stream holds already.
        let out = self.value(name, self.width(residual), self.rows(residual));
        self.multiply(x, &[(found, out)], false);
        self.add(residual, out);
        Ok(())
    }

    /// Return each head of `x` times a matrix of its own, of the stack `NAME.weight`, `[n_head,
    /// n_rows, d_head]`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn linear_heads(
        &mut self,
        x: Value,
        name: &'static str,
        n_head: usize,
        n_rows: usize,
    ) -> Result<Value, Error> {
        let n_cols = self.width(x) / n_head.max(1);
        let shape = [n_head, n_rows, n_cols];
        let weight = self.stack_of(StackOf::Heads, &format!("{name}.weight"), shape, 0..n_rows)?;
        let out = self.value(name, n_head * n_rows, self.rows(x));
        let room = self.value("heads", n_cols + n_rows + quantized_width(n_cols), self.rows(x));
        let step = Step::new("matmul_heads", Kind::MatMulHeads { n_head });
        self.push(step.reading([x]).writing([out, room]).using([weight]));
        Ok(out)
    }

    /// Return `x` times a matrix of low rank.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn low_rank(&mut self, x: Value, product: LowRank) -> Result<Value, Error> {
        let LowRank { down, up, activation, n_rows } = product;
        let rank = self.rows_of(&format!("{down}.weight"))?;
        let middle = self.linear(x, Linear::new(down, rank))?;
        self.activate(activation, middle);
        self.linear(middle, Linear::new(up, n_rows))
    }

    /// Add the whole tensor `name` as a matrix; errors as [`Builder::linear`].
    pub(super) fn matrix(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<WeightId, Error> {
        let info = self.tensor(name)?;
        info.expect_shape(&[n_rows, n_cols])?;
        let kind = packed_type(&info)?;
        Ok(self.add_weight(&info, WeightShape::Matrix { rows: 0..n_rows, n_cols, kind }))
    }

    pub(super) fn takes_quantized(&self, weight: WeightId) -> bool {
        self.graph.weights[weight.0 as usize].shape.takes_quantized()
    }

    fn find(&mut self, x: Value, linear: &Linear) -> Result<Found, Error> {
        let (n_cols, (rows, of)) = (self.width(x), linear.rows());
        let info = self.tensor(&format!("{}.weight", linear.name))?;
        match linear.cut {
            // A matrix of one row may lie there as a vector.
            Cut::Whole if of == 1 && info.n_elements() == n_cols => {}
            Cut::Whole | Cut::Rows { .. } => info.expect_shape(&[of, n_cols])?,
            Cut::Stacked { of, .. } => info.expect_shape(&[of, linear.n_rows, n_cols])?,
        }
        let kind = packed_type(&info)?;
        let first = rows.start;
        let weight = self.add_weight(&info, WeightShape::Matrix { rows, n_cols, kind });
        let scale = self.scale_of(linear.name)?;
        let bias = self.optional_vector(&format!("{}.bias", linear.name), of)?;
        Ok(Found { weight, scale, bias: bias.map(|bias| (bias, first)) })
    }

    /// Return the scale of a whole matrix. Architectures use longer vectors of that name otherwise.
    fn scale_of(&mut self, name: &str) -> Result<Option<WeightId>, Error> {
        let name = format!("{name}.scale");
        match self.tensor(&name) {
            Ok(info) if info.n_elements() == 1 => self.vector(&name, 1).map(Some),
            _ => Ok(None),
        }
    }

    /// Append products of `x` with several matrices: one step for those that take `x` as it is, one
    /// for those that take it quantised; then the scales and biases.
    fn multiply(&mut self, x: Value, products: &[(Found, Value)], add: bool) {
        for quantized in [false, true] {
            let group = products.iter().filter(|(found, _)| self.takes_quantized(found.weight) == quantized);
            let (weights, outs): (Vec<WeightId>, Vec<Value>) =
                group.map(|(found, out)| (found.weight, *out)).unzip();
            if weights.is_empty() {
                continue;
            }
            let x = if quantized { self.quantize(x) } else { x };
            let step = Step::new("matmul", Kind::MatMul { add }).reading([x]);
            let step = if add { step.reading(outs.iter().copied()) } else { step };
            self.push(step.writing(outs).using(weights));
        }
        for (found, out) in products {
            if let Some(scale) = found.scale {
                let step = Step::new("scale", Kind::Scale { factor: 1.0 });
                self.push(step.changing(*out).using([scale]));
            }
            if let Some((bias, first)) = found.bias {
                self.push(Step::new("bias", Kind::Bias { first }).changing(*out).using([bias]));
            }
        }
    }

    /// Return `x` in 8-bit blocks, made once however many matrices use it.
    fn quantize(&mut self, x: Value) -> Value {
        if let Some(out) = self.quantized.get(&x) {
            return *out;
        }
        let out = self.value("q8", quantized_width(self.width(x)), self.rows(x));
        self.push(Step::new("quantize", Kind::Quantize).reading([x]).writing([out]));
        self.quantized.insert(x, out);
        out
    }
}
