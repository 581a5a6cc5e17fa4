//! Steps: an operation with its operands, as data.

use super::{kind::Kind, value::Value, weight::WeightId};
use crate::error::Error;
use crate::llama_files::Piece;
use alloc::vec::Vec;

/// One operation of a graph: all that there is to know about it.
///
/// Made by the [`Builder`](super::Builder) in one place and never changed. Between steps there is
/// no other dependence than the values and the memory that they name, so the planner, the printer,
/// the profile and the journal need no knowledge of kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// A short name for people and profiles: `rms_norm`.
    pub name: &'static str,
    /// The operation and its numbers.
    pub kind: Kind,
    /// The values that it reads, in the order that the kind documents.
    pub reads: Vec<Value>,
    /// The values that it writes or changes.
    pub writes: Vec<Value>,
    /// The weights that it uses; optional ones stand last.
    pub weights: Vec<WeightId>,
    /// The memory that it carries from token to token.
    pub carries: Option<Carried>,
    /// The model's layer that it belongs to; none before the first and after the last.
    pub layer: Option<usize>,
}

/// Memory that a step carries from token to token.
#[derive(Clone, Debug)]
pub enum Carried {
    /// The cells of a layer's KV cache.
    Cells {
        /// The layer of the memory.
        layer: usize,
    },
    /// A state tensor of a recurrence.
    State(CarriedState),
}

/// The state that one step of a recurrent layer carries.
#[derive(Clone, Debug)]
pub struct CarriedState {
    /// The layer of the memory.
    pub layer: usize,
    /// Its number among the layer's state tensors.
    pub number: usize,
    /// The values to journal. With the weights, the old state, and what the layer's earlier
    /// recurrences make again in a replay, they decide the new state: of the values that enter the
    /// recurrence they are those that no replayed step writes.
    pub journaled: Vec<Value>,
    /// The row of llama.cpp's state files that holds it, and the order of its numbers there.
    pub in_llama: Piece,
}

impl Step {
    /// A step without operands.
    pub(super) fn new(name: &'static str, kind: Kind) -> Self {
        let (reads, writes, weights) = (Vec::new(), Vec::new(), Vec::new());
        Step { name, kind, reads, writes, weights, carries: None, layer: None }
    }

    /// Add values that the step reads.
    pub(super) fn reading(mut self, values: impl IntoIterator<Item = Value>) -> Self {
        self.reads.extend(values);
        self
    }

    /// Add values that the step writes.
    pub(super) fn writing(mut self, values: impl IntoIterator<Item = Value>) -> Self {
        self.writes.extend(values);
        self
    }

    /// Add a value that the step changes in place.
    pub(super) fn changing(self, value: Value) -> Self {
        self.reading([value]).writing([value])
    }

    /// Add weights that the step uses.
    pub(super) fn using(mut self, weights: impl IntoIterator<Item = WeightId>) -> Self {
        self.weights.extend(weights);
        self
    }

    /// Return the values that it reads.
    ///
    /// # Errors
    /// [`Error::Operands`] if it reads fewer or more than `N`.
    pub(crate) fn reads<const N: usize>(&self) -> Result<[Value; N], Error> {
        self.operands(&self.reads)
    }

    /// Return the values that it writes.
    ///
    /// # Errors
    /// [`Error::Operands`] if it writes fewer or more than `N`.
    pub(crate) fn writes<const N: usize>(&self) -> Result<[Value; N], Error> {
        self.operands(&self.writes)
    }

    /// Return the weights that it uses.
    ///
    /// # Errors
    /// [`Error::Operands`] if it uses fewer or more than `N`.
    pub(crate) fn weights<const N: usize>(&self) -> Result<[WeightId; N], Error> {
        self.operands(&self.weights)
    }

    fn operands<T: Copy, const N: usize>(&self, found: &[T]) -> Result<[T; N], Error> {
        <[T; N]>::try_from(found).map_err(|_| Error::Operands { operation: self.name })
    }

    /// Return the layer of the memory whose cells it uses.
    ///
    /// # Errors
    /// [`Error::Operands`] if it uses none.
    pub(crate) fn cells(&self) -> Result<usize, Error> {
        match &self.carries {
            Some(Carried::Cells { layer }) => Ok(*layer),
            _ => Err(Error::Operands { operation: self.name }),
        }
    }

    /// Return the state tensor that it carries, if it is a recurrence.
    pub(crate) fn state(&self) -> Option<&CarriedState> {
        match &self.carries {
            Some(Carried::State(state)) => Some(state),
            _ => None,
        }
    }
}
