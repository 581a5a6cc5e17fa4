//! Sizes and weights of operations that mix tokens without attention: what RWKV and the gated delta rule are made of.

use super::{Value, WeightId};
pub use backstitch_core::scan::Sharing;

/// A row of a vector weight that holds several.
#[derive(Clone, Copy, Debug)]
pub struct WeightRow {
    /// The vector, `[n_rows, width]`.
    pub weight: WeightId,
    /// Which row.
    pub row: usize,
}

/// How far [`Op::Lerp`](super::Op::Lerp) goes from one value towards another.
#[derive(Clone, Copy, Debug)]
pub enum Mix {
    /// For each column as far as a weight says.
    Weight(WeightRow),
    /// For each token and column as far as a value says.
    Value(Value),
    /// As far as both say together.
    Both(WeightRow, Value),
}

impl Mix {
    pub(crate) fn weight(&self) -> Option<WeightRow> {
        match *self {
            Mix::Weight(row) | Mix::Both(row, _) => Some(row),
            Mix::Value(_) => None,
        }
    }

    pub(crate) fn value(&self) -> Option<Value> {
        match *self {
            Mix::Value(value) | Mix::Both(_, value) => Some(value),
            Mix::Weight(_) => None,
        }
    }
}

/// Some columns of every group of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The first of a group.
    pub first: usize,
    /// How many of a group; those from `first` on are in the group.
    pub n: usize,
    /// Columns of a group, not 0.
    pub group: usize,
}

/// Sizes and weights of RWKV 6's recurrence.
#[derive(Clone, Copy, Debug)]
pub struct Wkv6Params {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// How much of the token's own value is read, `[n_head, d_head]`, as all weights.
    pub first: WeightId,
    /// Factor and summand of the normalised heads.
    pub norm: [WeightId; 2],
    /// Added to the variance of a head.
    pub eps: f32,
}

/// Sizes and weights of RWKV 7's recurrence.
#[derive(Clone, Copy, Debug)]
pub struct Wkv7Params {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// Weighs the key that is removed, `[n_head, d_head]`, as all weights.
    pub k_k: WeightId,
    /// How much the rate of learning changes the key that is stored.
    pub k_a: WeightId,
    /// How much of the token's own value is added.
    pub r_k: WeightId,
    /// Factor and summand of the normalised heads.
    pub norm: [WeightId; 2],
    /// Added to the variance of a head.
    pub eps: f32,
}

/// Sizes and weights of the gated delta rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaParams {
    /// Heads of values, gates and states.
    pub n_head: usize,
    /// Heads of queries and keys.
    pub n_head_k: usize,
    /// Which of them a head uses.
    pub sharing: Sharing,
    /// Keys of a head.
    pub d_k: usize,
    /// Values of a head.
    pub d_v: usize,
    /// Bias of the rate of forgetting, `[n_head]`.
    pub dt_bias: WeightId,
    /// Decay, negative, `[n_head]`.
    pub a: WeightId,
    /// Added to the square of a query's or key's length.
    pub eps: f32,
}
