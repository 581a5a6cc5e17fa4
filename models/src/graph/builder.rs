//! Building a graph: the interface for architecture files.
//!
//! The builder looks every tensor up as it is named, checks its shape, and decides how memory keeps
//! it; so an architecture is described once, and loading, checking and running follow from that
//! description. Every operation ends in [`Builder::push`] or [`Builder::push_recurrence`], the only
//! places that make steps.
//!
//! An operation that stands where it cannot (attention outside of a layer) is a mistake of the
//! architecture file. It is noted where it happens and returned by [`Builder::finish`], so that
//! architecture files need not handle it at every call.

pub(super) mod attention;
pub(super) mod elementwise;
pub(super) mod experts;
pub(super) mod lerp;
pub(super) mod linear;
pub(super) mod norm;
pub(super) mod recurrence;
pub(super) mod rope;

use super::{
    computation::{Graph, LayerEnd},
    rotation::RopeId,
    step::{Carried, CarriedState, Step},
    value::{Rows, Value, ValueInfo},
    weight::{WeightId, WeightInfo, WeightShape, decodable},
};
use crate::llama_files::Piece;
use crate::{
    error::Error,
    gguf::{Gguf, TensorInfo},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};
use backstitch_kv::StateTensor;

/// Builds a [`Graph`] from the tensors of a file.
///
/// Tensor names are those of the GGUF convention. After [`Builder::layer`] they get the prefix
/// `blk.N.`, and after [`Builder::stack`] that of the stack before it.
///
/// # Example
/// ```
/// use backstitch_models::gguf::Gguf;
/// use backstitch_models::graph::{Activation, Builder, Linear, Norm};
///
/// # use backstitch_models::{Error, graph::Value};
/// # fn build(b: &mut Builder<'_, '_>, x: Value) -> Result<(), Error> {
/// // A feed-forward network behind its norm, added to the residual stream `x`:
/// let normed = b.norm(x, Norm::rms("ffn_norm", 1e-5))?;
/// let [gate, up] = b.linears(normed, [Linear::new("ffn_gate", 96), Linear::new("ffn_up", 96)])?;
/// let product = b.gate(Activation::Silu, gate, up);
/// b.add_linear(x, product, "ffn_down")?;
/// # Ok(())
/// # }
/// ```
pub struct Builder<'g, 'a> {
    gguf: &'g Gguf<'a>,
    graph: Graph,
    /// The layer of the memory that operations use.
    layer: Option<usize>,
    /// Prefix of the layers' names: nothing, or `enc.` and `dec.`.
    stack: &'static str,
    /// Layers of the stack so far.
    n_layer: usize,
    /// Prefix of the names of tensors.
    prefix: String,
    /// Quantised copies of values that have not changed since.
    quantized: BTreeMap<Value, Value>,
    /// Values as a recurrence left them, which a replay makes again.
    remade: BTreeSet<Value>,
    /// The weights that each tensor is kept as; thousands of layers must not be searched for each.
    known: BTreeMap<String, Vec<WeightId>>,
    /// The values that hold the angles of each rotation.
    angles: Vec<(RopeId, Value)>,
    /// The first operation that stands where it cannot.
    fault: Option<Error>,
}

/// The state of a recurrence, where it is emitted.
struct Recurrence<'v> {
    /// Numbers of the state.
    len: usize,
    /// The values that enter it: with the weights and the old state they decide the new one.
    enters: &'v [Value],
    /// Its place in llama.cpp's state files.
    in_llama: Piece,
}

impl<'g, 'a> Builder<'g, 'a> {
    /// Start an empty graph over the tensors of `gguf`.
    pub fn new(gguf: &'g Gguf<'a>) -> Self {
        Builder {
            gguf,
            graph: Graph::empty(),
            layer: None,
            stack: "",
            n_layer: 0,
            prefix: String::new(),
            quantized: BTreeMap::new(),
            remade: BTreeSet::new(),
            known: BTreeMap::new(),
            angles: Vec::new(),
            fault: None,
        }
    }

    /// Return the finished graph.
    ///
    /// # Errors
    /// Mistakes of the architecture's description: [`Error::OutsideLayer`] for an operation that
    /// needs a layer and stands in none, [`Error::NoLayer`] if an operation uses memory that its
    /// layer does not keep, [`Error::Unwritten`] if a value is read before it is written. And
    /// [`Error::UnusedTensor`] if the description does not use a tensor that changes the results.
    pub fn finish(mut self) -> Result<Graph, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if let Some(encoder) = &mut self.graph.encoder {
            encoder.weights.clone_from(&self.graph.weights);
            encoder.rotations.clone_from(&self.graph.rotations);
            encoder.layers.clone_from(&self.graph.layers);
            encoder.cell_ropes.clone_from(&self.graph.cell_ropes);
        }
        self.graph.check(&self.graph.layers)?;
        self.check_unused()?;
        Ok(self.graph)
    }

    /// Check that the graph uses the tensors that change what a model computes wherever they are:
    /// the scale beside each matrix that it uses, and matrices behind the final norm.
    ///
    /// # Errors
    /// [`Error::UnusedTensor`].
    fn check_unused(&self) -> Result<(), Error> {
        let is_used = |name: &str| self.known.contains_key(name);
        let changes_results = |name: &str| match name.strip_suffix(".scale") {
            Some(matrix) => is_used(&format!("{matrix}.weight")),
            None => name.starts_with("dense_2.") || name.starts_with("dense_3."),
        };
        let mut names = self.gguf.tensors().iter().map(TensorInfo::name);
        match names.find(|name| changes_results(name) && !is_used(name)) {
            Some(tensor) => Err(Error::UnusedTensor { tensor: tensor.into() }),
            None => Ok(()),
        }
    }

    /// Use the names of layer `il` of the stack from now on; operations do not belong to a layer.
    pub fn block(&mut self, il: usize) {
        self.prefix = format!("{}blk.{il}.", self.stack);
    }

    /// Note that the layer ends here, with all that it added in `stream`: where a control vector
    /// is added.
    pub fn end_layer(&mut self, stream: Value) {
        let (Some(step), Some(layer)) = (self.graph.steps.len().checked_sub(1), self.n_layer.checked_sub(1))
        else {
            return self.note(Error::OutsideLayer { operation: "end_layer" });
        };
        self.quantized.remove(&stream);
        self.graph.layer_ends.push(LayerEnd { step, layer, stream });
    }

    /// End the last layer: names have no prefix again but the stack's.
    pub fn head(&mut self) {
        self.layer = None;
        self.prefix = self.stack.into();
    }

    /// Use the names of a stack of layers that begin with `stack`, as `enc.`, from now on; its
    /// first layer is the next.
    pub fn stack(&mut self, stack: &'static str) {
        (self.stack, self.n_layer) = (stack, 0);
        self.head();
    }

    /// End the encoder: the steps so far run on a text before the graph that follows does.
    pub fn end_encoder(&mut self) {
        let mut encoder = Graph::empty();
        encoder.values = core::mem::take(&mut self.graph.values);
        encoder.steps = core::mem::take(&mut self.graph.steps);
        encoder.head = self.graph.head;
        encoder.layer_ends = core::mem::take(&mut self.graph.layer_ends);
        self.graph.encoder = Some(encoder.into());
        self.quantized.clear();
        self.remade.clear();
        self.angles.clear();
    }

    /// Return true if the file has the tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(&self.full_name(name)).is_some()
    }

    /// Return the rows of the matrix `name`; none if the file lacks the tensor.
    pub fn n_rows(&self, name: &str) -> Option<usize> {
        self.gguf.tensor(&self.full_name(name)).and_then(|info| info.shape().first().copied())
    }

    /// Return the rows of the matrix `name`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`] if the file lacks the tensor.
    pub fn rows_of(&self, name: &str) -> Result<usize, Error> {
        self.n_rows(name).ok_or_else(|| Error::MissingTensor { tensor: self.full_name(name).into() })
    }

    /// Add the vector `name` of `len` elements, kept as `f32`; the tensor may spread them over
    /// several dimensions.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn vector(&mut self, name: &str, len: usize) -> Result<WeightId, Error> {
        let info = self.tensor(name)?;
        if info.n_elements() != len {
            info.expect_shape(&[len])?;
        }
        decodable(&info)?;
        Ok(self.add_weight(&info, WeightShape::Vector { len }))
    }

    /// Add the vector `name`, if the file has it; errors as [`Builder::vector`].
    fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<WeightId>, Error> {
        self.has(name).then(|| self.vector(name, len)).transpose()
    }

    /// Add a small matrix `[n_rows, n_cols]` that kernels read column by column; the tensor may
    /// have further dimensions of 1. Errors as [`Builder::vector`].
    fn columns_of(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<WeightId, Error> {
        let info = self.tensor(name)?;
        let wanted = [n_rows, n_cols];
        let without_ones = |shape: &[usize]| shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
        if without_ones(info.shape()) != without_ones(&wanted) {
            info.expect_shape(&wanted)?;
        }
        decodable(&info)?;
        Ok(self.add_weight(&info, WeightShape::Columns { n_rows, n_cols }))
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn tensor(&self, name: &str) -> Result<TensorInfo<'a>, Error> {
        let name = self.full_name(name);
        self.gguf.tensor(&name).ok_or_else(|| Error::MissingTensor { tensor: name.into() })
    }

    fn add_weight(&mut self, info: &TensorInfo<'_>, shape: WeightShape) -> WeightId {
        let tensor = String::from(info.name());
        let ids = self.known.entry(tensor.clone()).or_default();
        if let Some(id) = ids.iter().find(|id| self.graph.weights[id.0 as usize].shape == shape) {
            return *id;
        }
        let id = WeightId(self.graph.weights.len() as u32);
        ids.push(id);
        self.graph.weights.push(WeightInfo { tensor, dims: info.shape().into(), shape });
        id
    }

    fn value(&mut self, name: &'static str, width: usize, rows: Rows) -> Value {
        self.graph.values.push(ValueInfo { name, width, rows });
        Value(self.graph.values.len() as u32 - 1)
    }

    /// Return the width of a value. A value of another graph has none here, and [`Builder::finish`]
    /// refuses the step that reads it.
    fn width(&self, value: Value) -> usize {
        self.graph.values.get(value.0 as usize).map_or(0, |info| info.width)
    }

    /// Return the rows of a value; of a value of another graph as [`Builder::width`] does.
    fn rows(&self, value: Value) -> Rows {
        self.graph.values.get(value.0 as usize).map_or(Rows::Tokens, |info| info.rows)
    }

    /// Note a mistake of the architecture's description; the first one counts.
    fn note(&mut self, fault: Error) {
        self.fault.get_or_insert(fault);
    }

    /// Append a step.
    fn push(&mut self, mut step: Step) {
        for value in &step.writes {
            self.quantized.remove(value);
            self.remade.remove(value);
        }
        step.layer = self.layer;
        self.graph.steps.push(step);
    }

    /// Append a step that carries a state tensor of the layer. Of the values that enter it, those
    /// are journaled that no recurrence before it makes again in a replay.
    fn push_recurrence(&mut self, mut step: Step, state: Recurrence<'_>) {
        let journaled: Vec<Value> =
            state.enters.iter().copied().filter(|value| !self.remade.contains(value)).collect();
        let input = journaled.iter().map(|&value| self.width(value)).sum();
        let spec = self.layer.and_then(|layer| Some((layer, self.graph.layers.get_mut(layer)?)));
        let Some((layer, spec)) = spec else {
            return self.note(Error::OutsideLayer { operation: step.name });
        };
        let number = spec.recurrent.len();
        spec.recurrent.push(StateTensor { len: state.len, input });
        step.carries =
            Some(Carried::State(CarriedState { layer, number, journaled, in_llama: state.in_llama }));
        let written = step.writes.clone();
        self.push(step);
        self.remade.extend(written);
    }
}
