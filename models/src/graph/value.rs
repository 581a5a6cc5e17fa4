//! Values: the activations that steps read and write.

use backstitch_core::{packed::BLOCK, quantized::QBlock};

/// A matrix of activations, by its index in [`Graph::values`](super::Graph::values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// The tokens that the rows of a value stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Every token of the ubatch.
    Tokens,
    /// The tokens whose output was asked for.
    Outputs,
}

/// Shape and name of a value.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    /// A name for people: `attn_norm`, `q`.
    pub name: &'static str,
    /// Columns, in units of `f32`. A quantised row counts the `f32`s that its bytes fill.
    pub width: usize,
    /// The tokens that its rows stand for.
    pub rows: Rows,
}

/// Bytes of a block of 32 quantised activations, in `f32`s.
const QUANTIZED_BLOCK: usize = size_of::<QBlock>() / 4;

/// Return the `f32`s that a quantised row of `n_cols` activations takes.
pub(super) fn quantized_width(n_cols: usize) -> usize {
    n_cols.div_ceil(BLOCK) * QUANTIZED_BLOCK
}
