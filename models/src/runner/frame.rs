//! The frame of a ubatch: its values in the arena, and what all of its steps read.

use super::adapt::Adapting;
use crate::{
    error::Error,
    graph::{Graph, Plan, Rotation, Rows, Step, Value, WeightId},
    weights::Weights,
};
use backstitch_core::{KernelSet, pool::Pool};
use core::ops::Range;

/// The things that the steps of one ubatch share.
pub(super) struct Frame<'r> {
    pub set: &'static KernelSet,
    pub pool: &'r dyn Pool,
    pub weights: &'r Weights,
    pub rotations: &'r [Rotation],
    pub values: Values<'r>,
    pub scratch: &'r mut [f32],
    pub wanted: &'r [u32],
    pub adapters: Adapting<'r>,
}

/// The values of a ubatch, and their places in the arena.
pub(super) struct Values<'r> {
    pub graph: &'r Graph,
    pub plan: &'r Plan,
    pub arena: &'r mut [f32],
    pub n_tokens: usize,
    pub n_outputs: usize,
}

impl Values<'_> {
    pub fn width(&self, value: Value) -> usize {
        self.graph.width(value)
    }

    pub fn n_rows(&self, value: Value) -> usize {
        match self.graph.info(value).rows {
            Rows::Tokens => self.n_tokens,
            Rows::Outputs => self.n_outputs,
        }
    }

    /// Return the place of the rows of `value`. Without rows it is empty and at the start of the
    /// arena, and so disjoint from everything.
    pub fn range(&self, value: Value) -> Range<usize> {
        let len = self.n_rows(value) * self.width(value);
        let start = if len == 0 { 0 } else { self.plan.offset(value) * self.n_tokens };
        start..start + len
    }

    /// Return the values' rows, `[n_rows, width]` each.
    ///
    /// # Errors
    /// [`Error::Arena`] if two of them are the same value, or overlap.
    pub fn slices<const N: usize>(&mut self, values: [Value; N]) -> Result<[&mut [f32]; N], Error> {
        let ranges = values.map(|value| self.range(value));
        // The plan keeps apart what lives at the same time.
        self.arena.get_disjoint_mut(ranges).map_err(|_| Error::Arena)
    }
}

impl<'r> Frame<'r> {
    /// Return the vectors that a step uses.
    ///
    /// # Errors
    /// [`Error::Operands`] if it uses fewer or more than `N` weights, [`Error::WeightUse`] if one
    /// is no vector.
    pub fn vectors<const N: usize>(&self, step: &Step) -> Result<[&'r [f32]; N], Error> {
        let mut vectors = [&[][..]; N];
        for (vector, id) in vectors.iter_mut().zip(step.weights::<N>()?) {
            *vector = self.weights.vector(id)?;
        }
        Ok(vectors)
    }

    /// Return the name of the tensor of a weight.
    pub fn tensor(&self, id: WeightId) -> &'r str {
        self.values.graph.weight(id).map_or("", |info| &info.tensor)
    }

    /// Return the weight of a step and its bias, which is empty where it has none.
    ///
    /// # Errors
    /// [`Error::Operands`] if it uses no weight, [`Error::WeightUse`] if one is no vector.
    pub fn weight_and_bias(&self, step: &Step) -> Result<(&'r [f32], &'r [f32]), Error> {
        let refused = Error::Operands { operation: step.name };
        let (&weight, bias) = step.weights.split_first().ok_or(refused)?;
        let bias = match bias.first() {
            Some(&bias) => self.weights.vector(bias)?,
            None => &[],
        };
        Ok((self.weights.vector(weight)?, bias))
    }
}
