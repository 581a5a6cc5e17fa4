//! The computation of a model as data: built once when the model is opened, run for every batch.
//!
//! An architecture file asks the [`Builder`] for weights and operations; what comes out is a list of [`Step`]s over
//! [`Value`]s. A value is a matrix `[rows, width]` where rows are the tokens of a batch (or those among them whose
//! logits are wanted), so the same graph serves one token and a thousand. [`Plan`] places all values in one arena,
//! giving values that never live at the same time the same bytes; [`Graph::to_text`] and [`Graph::to_dot`] show both.

mod builder;
mod mixing;
mod op;
mod plan;
mod print;
mod profile;

pub use backstitch_kv::Rotation;
pub use builder::{Builder, Linear};
pub use mixing::{Columns, DeltaParams, Mix, Sharing, WeightRow, Wkv6Params, Wkv7Params};
pub use op::{MAX_INPUTS, Op};
pub use plan::Plan;
pub use profile::{Profile, ProfileRow};

use alloc::{boxed::Box, string::String, vec::Vec};
use backstitch_core::packed::PackedType;
use backstitch_kv::LayerSpec;
use core::ops::Range;

/// A matrix of activations, by its index in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// A weight, by its index in [`Graph::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightId(pub(crate) u32);

/// A table of rotation angles, by its index in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeId(pub(crate) u32);

/// A piece of a layer's recurrent state: that of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateId {
    pub(crate) layer: usize,
    pub(crate) part: usize,
    /// Which of the values that enter the state are journaled, as bits: those that no replayed operation makes again.
    pub(crate) journaled: u8,
}

/// What the rows of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Every token of the ubatch.
    Tokens,
    /// The tokens whose output was asked for.
    Outputs,
}

/// Shape and place of a value.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    /// What the value is, for people: `attn_norm`, `q`.
    pub name: &'static str,
    /// Columns, in units of `f32`. A quantised row counts the `f32`s that its bytes fill.
    pub width: usize,
    /// What its rows are.
    pub rows: Rows,
}

/// How a weight's elements are used, which decides how they are kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightShape {
    /// Multiplied with activations: kept in panels.
    Matrix {
        /// The rows of the tensor that belong to this weight.
        rows: Range<usize>,
        /// Columns: the length of the input.
        n_cols: usize,
        /// How the panels hold it.
        kind: PackedType,
    },
    /// One matrix an expert: `[n_expert, n_rows, n_cols]`, kept in panels expert by expert.
    Experts {
        /// Number of experts.
        n_expert: usize,
        /// Rows of each.
        n_rows: usize,
        /// Columns of each.
        n_cols: usize,
        /// How the panels hold them.
        kind: PackedType,
    },
    /// Norm weights, biases and the like: kept as `f32`.
    Vector {
        /// Number of elements.
        len: usize,
    },
    /// A table of terms by bucket of distance: kept as `f32` by distance, `[n_head, 2 * REACH + 1]`.
    Distances {
        /// Rows in the file: buckets.
        n_bucket: usize,
        /// Columns in the file.
        n_head: usize,
        /// Whether tokens ahead have buckets of their own.
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

/// A weight that the graph uses.
#[derive(Clone, Debug)]
pub struct WeightInfo {
    /// Name of the tensor in the file.
    pub tensor: String,
    /// What of it is used, and how.
    pub shape: WeightShape,
}

/// One matrix of a [`Op::MatMul`].
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The matrix, `[n_rows, n_cols]`.
    pub weight: WeightId,
    /// Where the result goes, `[n_tokens, n_rows]`.
    pub out: Value,
    /// Whether it is added to what is there (the residual stream) instead of replacing it.
    pub add: bool,
}

/// The function between the two halves of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// GELU by its tanh form.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    SquaredRelu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `tanh x`.
    Tanh,
    /// `x`.
    Identity,
}

/// Which row of a table a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOf {
    /// That of the token itself; a batch of embeddings brings its own.
    Token,
    /// That of its position.
    Position,
    /// The first: all tokens are of the first kind.
    First,
}

/// What becomes of the products of queries and keys before their softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Their factor.
    pub scale: f32,
    /// After that they become `cap * tanh(score / cap)`; 0 for none.
    pub soft_cap: f32,
}

/// How the weights of chosen experts are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertWeights {
    /// Softmax over all experts, then divided by the sum over the chosen ones.
    Renormalised,
    /// Softmax over all experts.
    Plain,
}

/// The tensors and sizes of a mixture-of-experts network.
#[derive(Clone, Copy, Debug)]
pub struct ExpertParams {
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// Gate matrices.
    pub gate: WeightId,
    /// Up matrices.
    pub up: WeightId,
    /// Down matrices.
    pub down: WeightId,
    /// How the chosen experts are weighed.
    pub weights: ExpertWeights,
    /// Factor of all weights.
    pub scale: f32,
}

/// Weights of a causal convolution.
#[derive(Clone, Copy, Debug)]
pub struct ConvParams {
    /// `[d_conv, n_channels]`; the last row meets the current token.
    pub taps: WeightId,
    /// `[n_channels]`, if there is one.
    pub bias: Option<WeightId>,
    /// Whether SiLU follows.
    pub silu: bool,
}

/// Sizes and weights of a Mamba-2 state-space step.
#[derive(Clone, Copy, Debug)]
pub struct SsdParams {
    /// Heads.
    pub n_head: usize,
    /// Channels a head.
    pub d_head: usize,
    /// Groups that share B and C.
    pub n_group: usize,
    /// State size a channel.
    pub d_state: usize,
    /// Bias of the time step, `[n_head]`.
    pub dt_bias: WeightId,
    /// Decay, negative, `[n_head]`.
    pub a: WeightId,
    /// Skip connection, `[n_head]`.
    pub d: WeightId,
}

/// What a graph puts out for each token whose output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Scores of all tokens of the vocabulary.
    Logits,
    /// The last hidden state.
    Embeddings,
}

/// An operation and where it stands.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// The model's layer it belongs to; none before the first and after the last.
    pub layer: Option<usize>,
}

/// A model's computation.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) steps: Vec<Step>,
    pub(crate) weights: Vec<WeightInfo>,
    pub(crate) ropes: Vec<Rotation>,
    pub(crate) layers: Vec<LayerSpec>,
    pub(crate) encoder: Option<Box<Graph>>,
}

impl Graph {
    /// All values, indexed by [`Value`].
    pub fn values(&self) -> &[ValueInfo] {
        &self.values
    }

    /// The operations in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The weight that an operation names by `id`; none if it is another graph's.
    pub fn weight(&self, id: WeightId) -> Option<&WeightInfo> {
        self.weights.get(id.0 as usize)
    }

    /// The weights that it uses, indexed by [`WeightId`].
    pub fn weights(&self) -> &[WeightInfo] {
        &self.weights
    }

    /// The encoder of an encoder-decoder. It is run on a text before this graph is; weights and layers of both are the
    /// same lists.
    pub fn encoder(&self) -> Option<&Graph> {
        self.encoder.as_deref()
    }

    /// What each layer keeps in memory.
    pub fn layers(&self) -> &[LayerSpec] {
        &self.layers
    }

    /// What comes out.
    pub fn head(&self) -> Head {
        match self.steps.last() {
            Some(Step { op: Op::Embeddings { .. }, .. }) => Head::Embeddings,
            _ => Head::Logits,
        }
    }

    /// Whether an operation concerns only tokens whose output is wanted.
    pub(crate) fn is_outputs_only(&self, op: &Op) -> bool {
        let mut only = true;
        let rows = |value: Value| self.values[value.0 as usize].rows;
        let copies = matches!(op, Op::Outputs { .. });
        op.each_value(|value, written| only &= rows(value) == Rows::Outputs || copies && !written);
        only
    }

    pub(crate) fn width(&self, value: Value) -> usize {
        self.values[value.0 as usize].width
    }
}

/// Bytes of a block of 32 quantised activations, in `f32`s.
const QUANTIZED_BLOCK: usize = size_of::<backstitch_core::quantized::QBlock>() / 4;

/// `f32`s that a quantised row of `n_cols` activations takes.
pub(crate) fn quantized_width(n_cols: usize) -> usize {
    n_cols.div_ceil(backstitch_core::packed::BLOCK) * QUANTIZED_BLOCK
}

/// Where the workspace of one token's experts has its pieces, in `f32`s: the quantised input from 0 on, then those
/// named; `result` ends at `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertScratch {
    pub(crate) gate: usize,
    pub(crate) up: usize,
    pub(crate) product: usize,
    pub(crate) result: usize,
    pub(crate) end: usize,
}

impl ExpertScratch {
    pub(crate) fn new(n_embd: usize, n_ff: usize) -> Self {
        let gate = quantized_width(n_embd);
        let up = gate + n_ff;
        let product = up + n_ff;
        let result = product + quantized_width(n_ff);
        ExpertScratch { gate, up, product, result, end: result + n_embd }
    }
}
