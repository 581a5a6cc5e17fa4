//! Building a graph: what architecture files talk to.
//!
//! The builder looks every tensor up as it is named, checks its shape, and decides how it is kept; so an
//! architecture is described once, and loading, checking and running follow from that description.

mod attention;
mod mixing;
mod scans;

use super::{
    Activation, ExpertParams, ExpertScratch, Graph, Op, Product, RopeId, Rotation, RowOf, Rows, StateId,
    Step, Value, ValueInfo, WeightId, WeightInfo, WeightShape, quantized_width,
};
use crate::{
    error::Error,
    gguf::{Gguf, TensorInfo},
    weights::{decodable, packed_type},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec,
    vec::Vec,
};
use backstitch_core::rope::Rope;
use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec, StatePart};
use core::ops::Range;

/// A matrix and, where the file has one, its bias.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    weight: WeightId,
    bias: Option<WeightId>,
    n_rows: usize,
}

/// Builds a [`Graph`] from the tensors of a file.
///
/// Tensor names are those of the GGUF convention; after [`Builder::layer`] they get the prefix `blk.N.`, and after
/// [`Builder::stack`] that of the stack before it.
pub struct Builder<'g, 'a> {
    gguf: &'g Gguf<'a>,
    graph: Graph,
    /// The layer of the memory that operations use.
    layer: Option<usize>,
    /// What layers are named after: nothing, or `enc.` and `dec.`.
    stack: &'static str,
    /// Layers of the stack so far.
    n_layer: usize,
    /// What names of tensors begin with.
    prefix: String,
    /// Quantised copies of values that are still what they were.
    quantized: BTreeMap<Value, Value>,
    /// Values as an operation with a state left them, which a replay makes again.
    remade: BTreeSet<Value>,
    /// The weights that each tensor is kept as; thousands of layers must not be searched for each.
    known: BTreeMap<String, Vec<WeightId>>,
    angles: Vec<(RopeId, Value)>,
}

impl<'g, 'a> Builder<'g, 'a> {
    /// An empty graph over the tensors of `gguf`.
    pub fn new(gguf: &'g Gguf<'a>) -> Self {
        let graph = Graph {
            values: vec![],
            steps: vec![],
            weights: vec![],
            ropes: vec![],
            layers: vec![],
            encoder: None,
        };
        Builder {
            gguf,
            graph,
            layer: None,
            stack: "",
            n_layer: 0,
            prefix: String::new(),
            quantized: BTreeMap::new(),
            remade: BTreeSet::new(),
            known: BTreeMap::new(),
            angles: vec![],
        }
    }

    /// The finished graph.
    pub fn finish(mut self) -> Graph {
        if let Some(encoder) = &mut self.graph.encoder {
            encoder.weights.clone_from(&self.graph.weights);
            encoder.ropes.clone_from(&self.graph.ropes);
            encoder.layers.clone_from(&self.graph.layers);
        }
        self.graph
    }

    /// Starts the next layer, which keeps `spec` in memory.
    pub fn layer(&mut self, spec: LayerSpec) {
        self.layer = Some(self.graph.layers.len());
        self.graph.layers.push(spec);
        self.block(self.n_layer);
        self.n_layer += 1;
    }

    /// Names are from now on those of layer `il` of the stack; operations do not belong to a layer.
    pub fn block(&mut self, il: usize) {
        self.prefix = format!("{}blk.{il}.", self.stack);
    }

    /// Ends the last layer: names have no prefix again but the stack's.
    pub fn head(&mut self) {
        self.layer = None;
        self.prefix = self.stack.into();
    }

    /// Names are from now on those of a stack of layers that begin with `stack`, as `enc.`; its first layer is the next.
    pub fn stack(&mut self, stack: &'static str) {
        (self.stack, self.n_layer) = (stack, 0);
        self.head();
    }

    /// Ends the encoder: what was built so far is run on a text before the graph that follows is.
    pub fn end_encoder(&mut self) {
        let (values, steps) =
            (core::mem::take(&mut self.graph.values), core::mem::take(&mut self.graph.steps));
        let encoder = Graph { values, steps, weights: vec![], ropes: vec![], layers: vec![], encoder: None };
        self.graph.encoder = Some(encoder.into());
        self.quantized.clear();
        self.remade.clear();
        self.angles.clear();
    }

    /// A layer of the memory for what the decoder attends to of a text: the number that [`Builder::store_text`] and [`Builder::cross`]
    /// take.
    pub fn text_layer(&mut self, layer: AttentionLayer) -> usize {
        self.graph.layers.push(LayerSpec { attention: AttentionSpec::Cross(layer), ..LayerSpec::default() });
        self.graph.layers.len() - 1
    }

    /// Whether the file has the tensor.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(&self.full_name(name)).is_some()
    }

    /// Rows of a matrix; none if the file lacks the tensor.
    pub fn n_rows(&self, name: &str) -> Option<usize> {
        self.gguf.tensor(&self.full_name(name)).map(|info| info.shape()[0])
    }

    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn tensor(&self, name: &str) -> Result<(String, TensorInfo<'a>), Error> {
        let name = self.full_name(name);
        match self.gguf.tensor(&name) {
            Some(info) => Ok((name, info)),
            None => Err(Error::MissingTensor { tensor: name.into() }),
        }
    }

    fn add_weight(&mut self, tensor: String, shape: WeightShape) -> WeightId {
        let ids = self.known.entry(tensor.clone()).or_default();
        if let Some(id) = ids.iter().find(|id| self.graph.weights[id.0 as usize].shape == shape) {
            return *id;
        }
        let id = WeightId(self.graph.weights.len() as u32);
        ids.push(id);
        self.graph.weights.push(WeightInfo { tensor, shape });
        id
    }

    /// A vector of `len` elements, kept as `f32`; the tensor may spread them over several dimensions.
    ///
    /// # Errors
    /// If the file lacks the tensor or it has another size.
    pub fn vector(&mut self, name: &str, len: usize) -> Result<WeightId, Error> {
        let (name, info) = self.tensor(name)?;
        if info.n_elements() != len {
            info.expect_shape(&[len])?;
        }
        decodable(&info)?;
        Ok(self.add_weight(name, WeightShape::Vector { len }))
    }

    /// Some rows of a matrix `[n_rows, n_cols]`, kept in panels; all of them, unless the tensor holds several matrices one
    /// below the other.
    ///
    /// # Errors
    /// If the file lacks the tensor, it has another shape, or its type cannot be decoded.
    pub fn matrix(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        rows: Range<usize>,
    ) -> Result<WeightId, Error> {
        let (name, info) = self.tensor(name)?;
        info.expect_shape(&[n_rows, n_cols])?;
        let kind = packed_type(&info)?;
        Ok(self.add_weight(name, WeightShape::Matrix { rows, n_cols, kind }))
    }

    /// One matrix `[n_rows, n_cols]` an expert.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn experts(
        &mut self,
        name: &str,
        n_expert: usize,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<WeightId, Error> {
        let (name, info) = self.tensor(name)?;
        info.expect_shape(&[n_expert, n_rows, n_cols])?;
        let kind = packed_type(&info)?;
        Ok(self.add_weight(name, WeightShape::Experts { n_expert, n_rows, n_cols, kind }))
    }

    /// The matrix `NAME.weight` with the bias `NAME.bias` if the file has one.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn linear(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<Linear, Error> {
        let weight = self.matrix(&format!("{name}.weight"), n_rows, n_cols, 0..n_rows)?;
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.vector(&bias, n_rows)?) } else { None };
        Ok(Linear { weight, bias, n_rows })
    }

    fn value(&mut self, name: &'static str, width: usize, rows: Rows) -> Value {
        self.graph.values.push(ValueInfo { name, width, rows });
        Value(self.graph.values.len() as u32 - 1)
    }

    fn rows(&self, value: Value) -> Rows {
        self.graph.values[value.0 as usize].rows
    }

    fn push(&mut self, op: Op) {
        op.each_value(|value, written| {
            if written {
                self.quantized.remove(&value);
                self.remade.remove(&value);
            }
        });
        if op.state().is_some() {
            op.each_value(|value, written| {
                if written {
                    self.remade.insert(value);
                }
            });
        }
        self.graph.steps.push(Step { op, layer: self.layer });
    }

    /// The embeddings of the tokens, from the matrix `name`.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn embed(&mut self, name: &str, n_vocab: usize, n_embd: usize) -> Result<Value, Error> {
        self.embed_by(RowOf::Token, name, n_vocab, n_embd)
    }

    /// For each token a row of the matrix `name`.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn embed_by(&mut self, by: RowOf, name: &str, n_rows: usize, n_embd: usize) -> Result<Value, Error> {
        let table = self.matrix(name, n_rows, n_embd, 0..n_rows)?;
        let out = self.value("x", n_embd, Rows::Tokens);
        self.push(Op::Embed { table, by, scale: 1.0, out });
        Ok(out)
    }

    /// As [`Builder::embed`], times `scale`.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn embed_scaled(
        &mut self,
        name: &str,
        n_vocab: usize,
        n_embd: usize,
        scale: f32,
    ) -> Result<Value, Error> {
        let table = self.matrix(name, n_vocab, n_embd, 0..n_vocab)?;
        let out = self.value("x", n_embd, Rows::Tokens);
        self.push(Op::Embed { table, by: RowOf::Token, scale, out });
        Ok(out)
    }

    /// Layer norm of `x`, in place, by the vectors `NAME.weight` and, where the file has it, `NAME.bias`.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn layer_norm(&mut self, x: Value, name: &str, eps: f32) -> Result<(), Error> {
        self.layer_norm_to(x, name, eps, x)
    }

    /// As [`Builder::layer_norm`], but `x` stays as it is.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn layer_normed(&mut self, x: Value, name: &'static str, eps: f32) -> Result<Value, Error> {
        let out = self.value(name, self.graph.width(x), self.rows(x));
        self.layer_norm_to(x, name, eps, out)?;
        Ok(out)
    }

    fn layer_norm_to(&mut self, x: Value, name: &str, eps: f32, out: Value) -> Result<(), Error> {
        let width = self.graph.width(x);
        let weight = self.vector(&format!("{name}.weight"), width)?;
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.vector(&bias, width)?) } else { None };
        self.push(Op::LayerNorm { x, weight, bias, eps, out });
        Ok(())
    }

    /// `activation(x)`, in place.
    pub fn activate(&mut self, activation: Activation, x: Value) {
        self.push(Op::Activate { activation, x });
    }

    /// Root-mean-square norm of `x`, times the vector `weight`.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn rms_norm(&mut self, name: &'static str, x: Value, weight: &str, eps: f32) -> Result<Value, Error> {
        let width = self.graph.width(x);
        let weight = self.vector(weight, width)?;
        let out = self.value(name, width, self.rows(x));
        self.push(Op::RmsNorm { x, weight: Some(weight), eps, group: width, out });
        Ok(out)
    }

    /// Normalises each group of `group` columns of `x` in place; `weight` has `n_weight` elements, one for each column of a
    /// group or of the whole.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn group_norm(
        &mut self,
        x: Value,
        weight: &str,
        n_weight: usize,
        group: usize,
        eps: f32,
    ) -> Result<(), Error> {
        let weight = self.vector(weight, n_weight)?;
        self.push(Op::RmsNorm { x, weight: Some(weight), eps, group, out: x });
        Ok(())
    }

    /// Normalises each row of `x` in place, without weights.
    pub fn plain_norm(&mut self, x: Value, eps: f32) {
        self.push(Op::RmsNorm { x, weight: None, eps, group: self.graph.width(x), out: x });
    }

    /// `x` in eight-bit blocks, made once however many matrices use it.
    fn quantize(&mut self, x: Value) -> Value {
        if let Some(out) = self.quantized.get(&x) {
            return *out;
        }
        let width = quantized_width(self.graph.width(x));
        let out = self.value("q8", width, self.rows(x));
        self.push(Op::Quantize { x, out });
        self.quantized.insert(x, out);
        out
    }

    fn is_quantized(&self, weight: WeightId) -> bool {
        match &self.graph.weights[weight.0 as usize].shape {
            WeightShape::Matrix { kind, .. } | WeightShape::Experts { kind, .. } => kind.takes_quantized(),
            WeightShape::Vector { .. } | WeightShape::Columns { .. } | WeightShape::Distances { .. } => false,
        }
    }

    /// Products of `x` with several matrices: one step for those that take `x` as it is, one for those that take it
    /// quantised.
    fn products(&mut self, x: Value, products: &[Product]) {
        for quantized in [false, true] {
            let group: Vec<Product> =
                products.iter().copied().filter(|p| self.is_quantized(p.weight) == quantized).collect();
            if !group.is_empty() {
                let x = if quantized { self.quantize(x) } else { x };
                self.push(Op::MatMul { x, products: group });
            }
        }
    }

    /// `x` times each of the matrices (plus its bias).
    pub fn linears<const N: usize>(
        &mut self,
        x: Value,
        matrices: [Linear; N],
        names: [&'static str; N],
    ) -> [Value; N] {
        let rows = self.rows(x);
        let outs: [Value; N] = core::array::from_fn(|i| self.value(names[i], matrices[i].n_rows, rows));
        let products: [Product; N] =
            core::array::from_fn(|i| Product { weight: matrices[i].weight, out: outs[i], add: false });
        self.products(x, &products);
        for (matrix, x) in matrices.iter().zip(outs) {
            if let Some(bias) = matrix.bias {
                self.push(Op::Bias { x, bias });
            }
        }
        outs
    }

    /// `x` times the matrix `NAME.weight` of `n_rows` rows, cut into pieces of rows, each a value of its own.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn pieces<const N: usize>(
        &mut self,
        x: Value,
        name: &str,
        n_rows: usize,
        pieces: [(&'static str, Range<usize>); N],
    ) -> Result<[Value; N], Error> {
        let (n_cols, name) = (self.graph.width(x), format!("{name}.weight"));
        let mut matrices = [Linear { weight: WeightId(0), bias: None, n_rows: 0 }; N];
        for (matrix, (_, rows)) in matrices.iter_mut().zip(&pieces) {
            matrix.weight = self.matrix(&name, n_rows, n_cols, rows.clone())?;
            matrix.n_rows = rows.len();
        }
        Ok(self.linears(x, matrices, pieces.map(|(name, _)| name)))
    }

    /// `residual += x` times the matrix (plus its bias).
    pub fn add_linear(&mut self, residual: Value, x: Value, matrix: Linear) {
        self.products(x, &[Product { weight: matrix.weight, out: residual, add: true }]);
        if let Some(bias) = matrix.bias {
            self.push(Op::Bias { x: residual, bias });
        }
    }

    /// Declares a rotation; its frequencies are divided by the vector `factors` where the file has one.
    ///
    /// # Errors
    /// As [`Builder::vector`].
    pub fn rope(&mut self, rope: Rope, factors: &str) -> Result<RopeId, Error> {
        let n_pairs = rope.n_rot / 2;
        let mut divisors = vec![];
        if self.has(factors) {
            let (_, info) = self.tensor(factors)?;
            info.expect_shape(&[n_pairs])?;
            divisors.resize(n_pairs, 0.0);
            info.dtype().decode(self.gguf.tensor_data(&info), &mut divisors)?;
        }
        let mut frequencies = vec![0.0; n_pairs];
        rope.frequencies(&divisors, &mut frequencies)?;
        self.graph.ropes.push(Rotation { rope, frequencies });
        Ok(RopeId(self.graph.ropes.len() as u32 - 1))
    }

    /// The rotation itself.
    pub fn rotation(&self, rope: RopeId) -> &Rotation {
        &self.graph.ropes[rope.0 as usize]
    }

    /// Rotates the `n_head` heads of `x` in place.
    pub fn rotate(&mut self, x: Value, rope: RopeId, n_head: usize) {
        let known = self.angles.iter().find(|(of, _)| *of == rope).map(|(_, angles)| *angles);
        let angles = known.unwrap_or_else(|| {
            let width = self.rotation(rope).rope.row_len();
            let out = self.value("angles", width, Rows::Tokens);
            self.push(Op::Angles { rope, out });
            self.angles.push((rope, out));
            out
        });
        self.push(Op::Rotate { x, angles, rope, n_head });
    }

    /// Adds a piece of `len` numbers to the layer's recurrent state, stepped by an operation into which `inputs` enter.
    fn state(&mut self, len: usize, inputs: &[Value]) -> StateId {
        let layer = self.layer.unwrap_or_default();
        let (mut journaled, mut input) = (0, 0);
        for (i, value) in inputs.iter().enumerate().filter(|(_, value)| !self.remade.contains(value)) {
            journaled |= 1 << i;
            input += self.graph.width(*value);
        }
        let parts = &mut self.graph.layers[layer].recurrent;
        parts.push(StatePart { len, input });
        StateId { layer, part: parts.len() - 1, journaled }
    }

    /// `activation(gate) * up`, in place of `up`.
    pub fn gate(&mut self, activation: Activation, gate: Value, up: Value) -> Value {
        self.push(Op::Gate { activation, gate, up });
        up
    }

    /// Adds a mixture of experts to `residual`; `router` has a row of logits a token.
    pub fn add_experts(&mut self, residual: Value, x: Value, router: Value, params: ExpertParams) {
        let width = ExpertScratch::new(self.graph.width(residual), params.n_ff).end;
        let scratch = self.value("scratch", width, self.rows(x));
        self.push(Op::Experts { x, router, scratch, out: residual, params });
    }

    /// `x += y`.
    pub fn add(&mut self, x: Value, y: Value) {
        self.push(Op::Add { x, y });
    }

    /// `x *= y`, element by element.
    pub fn mul(&mut self, x: Value, y: Value) {
        self.push(Op::Mul { x, y });
    }

    /// The rows of `x` whose output is wanted; what comes after costs nothing for the others.
    pub fn outputs(&mut self, x: Value) -> Value {
        let info = &self.graph.values[x.0 as usize];
        let (name, width) = (info.name, info.width);
        let out = self.value(name, width, Rows::Outputs);
        self.push(Op::Outputs { x, out });
        out
    }

    /// The scores of the vocabulary: `x` times `output.weight` or, where the file has none, times the embeddings.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn logits(&mut self, x: Value, n_vocab: usize) -> Result<(), Error> {
        self.capped_logits(x, n_vocab, 0.0)
    }

    /// As [`Builder::logits`]; the scores become `soft_cap * tanh(score / soft_cap)`, unless it is 0.
    ///
    /// # Errors
    /// As [`Builder::matrix`].
    pub fn capped_logits(&mut self, x: Value, n_vocab: usize, soft_cap: f32) -> Result<(), Error> {
        let n_embd = self.graph.width(x);
        let name = if self.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        let head = self.matrix(name, n_vocab, n_embd, 0..n_vocab)?;
        let width = if self.is_quantized(head) { quantized_width(n_embd) } else { 0 };
        let scratch = self.value("q8", width, self.rows(x));
        self.push(Op::Logits { x, head, scratch, soft_cap });
        Ok(())
    }

    /// Ends the graph with the rows of `x` themselves instead of logits: the embeddings of the tokens.
    pub fn embeddings(&mut self, x: Value) {
        self.push(Op::Embeddings { x });
    }
}
