//! Mixtures of a token with the one before it, as RWKV makes them.

use super::Builder;
use crate::{
    error::Error,
    graph::{kind::Kind, step::Step, value::Value},
};

/// A row of a vector weight that holds several, each as wide as the value that it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightRow {
    /// Name of the tensor.
    pub name: &'static str,
    /// Rows of the tensor.
    pub n_rows: usize,
    /// The row that is used.
    pub row: usize,
}

impl WeightRow {
    /// The only row of the vector `name`.
    pub const fn only(name: &'static str) -> Self {
        WeightRow { name, n_rows: 1, row: 0 }
    }
}

/// The share of the second value in [`Builder::lerp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// A weight's, by column.
    Weight(WeightRow),
    /// A value's, by token and column.
    Value(Value),
    /// The sum of both.
    Both(WeightRow, Value),
}

impl Builder<'_, '_> {
    /// Return `x + (y - x) * mix`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn lerp(&mut self, name: &'static str, x: Value, y: Value, mix: Mix) -> Result<Value, Error> {
        let width = self.width(x);
        let (row, by) = match mix {
            Mix::Weight(row) => (Some(row), None),
            Mix::Value(by) => (None, Some(by)),
            Mix::Both(row, by) => (Some(row), Some(by)),
        };
        let mut vector = None;
        if let Some(WeightRow { name, n_rows, .. }) = row {
            vector = Some(self.vector(name, n_rows.saturating_mul(width))?);
        }
        let out = self.value(name, width, self.rows(x));
        let kind = Kind::Lerp { row: row.map_or(0, |row| row.row) };
        self.push(Step::new("lerp", kind).reading([x, y]).reading(by).writing([out]).using(vector));
        Ok(out)
    }
}
