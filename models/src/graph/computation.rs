//! A model's whole computation.

use super::{
    kind::{Kind, RowOf},
    rotation::{RopeId, RotationChoice},
    step::{Carried, Step},
    value::{Rows, Value, ValueInfo},
    weight::{WeightId, WeightInfo},
};
use crate::error::Error;
use alloc::{borrow::Cow, boxed::Box, vec::Vec};
use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec, Rotation};

/// The output of a graph for each token whose output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Scores of all tokens of the vocabulary.
    Logits,
    /// The last hidden state.
    Embeddings,
}

/// A model's computation: steps over values and weights, and the memory of its layers.
///
/// Made by a [`Builder`](super::Builder), which checks it when it is finished: every value is
/// written before it is read, and every step that carries memory names a layer that keeps some.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) values: Vec<ValueInfo>,
    pub(super) steps: Vec<Step>,
    pub(super) weights: Vec<WeightInfo>,
    pub(super) rotations: Vec<RotationChoice>,
    pub(super) layers: Vec<LayerSpec>,
    /// The rotation of the keys that each layer stores, parallel to `layers`.
    pub(super) cell_ropes: Vec<Option<RopeId>>,
    pub(super) head: Head,
    pub(super) encoder: Option<Box<Graph>>,
    /// The ends of its layers, in the order of their steps.
    pub(super) layer_ends: Vec<LayerEnd>,
}

/// The place behind a layer, where the stream of hidden states holds all that the layer added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerEnd {
    /// The number of the layer's last step in the graph.
    pub step: usize,
    /// The layer of the graph's stack, from 0.
    pub layer: usize,
    /// The stream.
    pub stream: Value,
}

impl Graph {
    pub(super) fn empty() -> Self {
        Graph {
            values: Vec::new(),
            steps: Vec::new(),
            weights: Vec::new(),
            rotations: Vec::new(),
            layers: Vec::new(),
            cell_ropes: Vec::new(),
            head: Head::Logits,
            encoder: None,
            layer_ends: Vec::new(),
        }
    }

    /// All values, indexed by [`Value`].
    pub fn values(&self) -> &[ValueInfo] {
        &self.values
    }

    /// The steps in the order in which they run.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Return true if the rows in front of the scores of the vocabulary are no embeddings any more,
    /// because a step scales them.
    pub(crate) fn scales_for_logits(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, Kind::ScaleForLogits { .. }))
    }

    /// Return the weight that a step names by `id`; none if it is another graph's.
    pub fn weight(&self, id: WeightId) -> Option<&WeightInfo> {
        self.weights.get(id.0 as usize)
    }

    /// The weights that it uses, indexed by [`WeightId`].
    pub fn weights(&self) -> &[WeightInfo] {
        &self.weights
    }

    /// The encoder of an encoder-decoder. It runs on a text before this graph does; weights and
    /// layers of both are the same lists.
    pub fn encoder(&self) -> Option<&Graph> {
        self.encoder.as_deref()
    }

    /// The ends of the layers, in the order of their steps: where control vectors are added.
    pub fn layer_ends(&self) -> &[LayerEnd] {
        &self.layer_ends
    }

    /// The memory of each layer, with keys rotated as in contexts of the usual length.
    pub fn layers(&self) -> &[LayerSpec] {
        &self.layers
    }

    /// Return the memory of each layer in a context of `n_ctx` tokens.
    pub fn layers_in(&self, n_ctx: u32) -> Cow<'_, [LayerSpec]> {
        if !self.is_long(n_ctx) {
            return Cow::Borrowed(&self.layers);
        }
        let mut layers = self.layers.clone();
        for (layer, rope) in layers.iter_mut().zip(&self.cell_ropes) {
            let choice = rope.and_then(|rope| self.rotations.get(rope.0 as usize));
            if let (Some(rotation), Some(choice)) = (rotation_of(layer), choice) {
                *rotation = choice.of_context(n_ctx).clone();
            }
        }
        Cow::Owned(layers)
    }

    /// The rotations, indexed by [`RopeId`](super::RopeId).
    pub fn rotations(&self) -> &[RotationChoice] {
        &self.rotations
    }

    /// Return true if some rotation of a context of `n_ctx` tokens is that of long contexts.
    pub fn is_long(&self, n_ctx: u32) -> bool {
        self.rotations.iter().any(|choice| choice.is_long(n_ctx))
    }

    /// Return the positions that the model has embeddings for, if it adds one to each token: no
    /// sequence can be longer.
    pub fn n_positions(&self) -> Option<usize> {
        let by_position = |step: &&Step| matches!(step.kind, Kind::Embed { by: RowOf::Position, .. });
        let tables = self.steps.iter().filter(by_position).flat_map(|step| &step.weights);
        tables.filter_map(|&id| self.weight(id)?.dims.first().copied()).min()
    }

    /// Return the output of the graph.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Return true if a step concerns only tokens whose output is wanted: all that it writes, or
    /// all that it reads if it writes nothing, has rows for those alone.
    pub(crate) fn is_outputs_only(&self, step: &Step) -> bool {
        let values = if step.writes.is_empty() { &step.reads } else { &step.writes };
        step.carries.is_none() && values.iter().all(|&value| self.info(value).rows == Rows::Outputs)
    }

    pub(crate) fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.0 as usize]
    }

    pub(crate) fn width(&self, value: Value) -> usize {
        self.info(value).width
    }

    /// Check what the runner relies on; `layers` is the memory, which an encoder shares.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if a step reads a value before any wrote it, [`Error::NoLayer`] if one
    /// uses cells or a state of a layer that keeps none.
    pub(super) fn check(&self, layers: &[LayerSpec]) -> Result<(), Error> {
        let mut is_written = alloc::vec![false; self.values.len()];
        for step in &self.steps {
            let refused = || Error::Unwritten { operation: step.name };
            if step.reads.iter().any(|value| is_written.get(value.0 as usize) != Some(&true)) {
                return Err(refused());
            }
            for value in &step.writes {
                *is_written.get_mut(value.0 as usize).ok_or_else(refused)? = true;
            }
            let (layer, is_kept) = match &step.carries {
                None => continue,
                Some(Carried::Cells { layer }) => (*layer, has_cells(layers.get(*layer))),
                Some(Carried::State(state)) => {
                    let kept = layers.get(state.layer).map_or(0, |layer| layer.recurrent.len());
                    (state.layer, state.number < kept)
                }
            };
            if !is_kept {
                return Err(Error::NoLayer { layer });
            }
        }
        self.encoder.as_ref().map_or(Ok(()), |encoder| encoder.check(layers))
    }
}

fn has_cells(layer: Option<&LayerSpec>) -> bool {
    layer.is_some_and(|layer| !matches!(layer.attention, AttentionSpec::Absent))
}

/// Return the shape of a layer's keys and values; none if it stores none of its own.
pub(super) fn attention_of(layer: &LayerSpec) -> Option<&AttentionLayer> {
    match &layer.attention {
        AttentionSpec::Cached(spec)
        | AttentionSpec::BatchOnly { layer: spec, .. }
        | AttentionSpec::Cross(spec) => Some(spec),
        AttentionSpec::Absent | AttentionSpec::SharedWith(_) => None,
    }
}

fn rotation_of(layer: &mut LayerSpec) -> Option<&mut Rotation> {
    match &mut layer.attention {
        AttentionSpec::Cached(spec)
        | AttentionSpec::BatchOnly { layer: spec, .. }
        | AttentionSpec::Cross(spec) => spec.rope.as_mut(),
        AttentionSpec::Absent | AttentionSpec::SharedWith(_) => None,
    }
}
