//! Weights: the tensors of the file that steps use, and the shape in which memory keeps each.

use crate::{error::Error, gguf::TensorInfo};
use alloc::boxed::Box;
use alloc::string::String;
use backstitch_core::packed::PackedType;
use core::ops::Range;

/// A weight, by its index in [`Graph::weights`](super::Graph::weights).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightId(pub(crate) u32);

/// The use of a weight's elements, which decides how memory keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightShape {
    /// Multiplied with activations: kept in panels.
    Matrix {
        /// The rows of the tensor that belong to this weight.
        rows: Range<usize>,
        /// Columns: the length of the input.
        n_cols: usize,
        /// The format of the panels.
        kind: PackedType,
    },
    /// One matrix an expert or head, `[n_matrices, n_rows, n_cols]`, or some rows of each: kept in
    /// panels matrix by matrix.
    Stack {
        /// The things that have a matrix each.
        of: StackOf,
        /// Number of matrices.
        n_matrices: usize,
        /// Rows of each in the file.
        n_rows: usize,
        /// The rows of each that belong to this weight.
        rows: Range<usize>,
        /// Columns of each.
        n_cols: usize,
        /// The format of the panels.
        kind: PackedType,
    },
    /// Norm weights, biases and the like: kept as `f32`.
    Vector {
        /// Number of elements.
        len: usize,
    },
    /// A table of relative position biases by bucket of distance: kept as `f32` by distance,
    /// `[n_head, 2 * REACH + 1]`.
    Distances {
        /// Rows in the file: buckets.
        n_bucket: usize,
        /// Columns in the file.
        n_head: usize,
        /// True if tokens ahead have buckets of their own.
        both_ways: bool,
    },
    /// A small table that kernels read column by column: kept as `f32`, transposed.
    Columns {
        /// Rows in the file.
        n_rows: usize,
        /// Columns in the file.
        n_cols: usize,
    },
}

/// The things that each have a matrix of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackOf {
    /// Experts, of which each token uses a few.
    Experts,
    /// Heads, all of which each token uses.
    Heads,
}

impl WeightShape {
    /// Return true if products with this weight take their input in 8-bit blocks.
    pub(super) fn takes_quantized(&self) -> bool {
        match self {
            WeightShape::Matrix { kind, .. } | WeightShape::Stack { kind, .. } => kind.takes_quantized(),
            WeightShape::Vector { .. } | WeightShape::Columns { .. } | WeightShape::Distances { .. } => false,
        }
    }
}

/// A weight that the graph uses.
#[derive(Clone, Debug)]
pub struct WeightInfo {
    /// Name of the tensor in the file.
    pub tensor: String,
    /// The dimensions of the whole tensor, outermost first.
    pub dims: Box<[usize]>,
    /// The part of it that is used, and how.
    pub shape: WeightShape,
}

/// Return the format of the panels in which a matrix of this tensor's type is kept.
///
/// # Errors
/// [`Error::NotWeights`] if the type holds no weights.
pub(crate) fn packed_type(info: &TensorInfo<'_>) -> Result<PackedType, Error> {
    let refused = || Error::NotWeights { tensor: info.name().into(), found: info.dtype() };
    PackedType::of(info.dtype()).ok_or_else(refused)
}

/// Check that the tensor's elements can be decoded to `f32`.
///
/// # Errors
/// [`Error::NotWeights`] if the type holds no weights, [`Error::PackedRows`] if the tensor is
/// packed for products.
pub(super) fn decodable(info: &TensorInfo<'_>) -> Result<(), Error> {
    if info.is_packed() {
        return Err(Error::PackedRows { tensor: info.name().into() });
    }
    packed_type(info).map(|_| ())
}
