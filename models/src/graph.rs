//! The computation of a model as data: built once when the model is opened, run for every batch.
//!
//! An architecture file asks the [`Builder`] for weights and operations; what comes out is a list of [`Step`]s over
//! [`Value`]s. A value is a matrix `[rows, width]` where rows are the tokens of a batch (or those among them whose
//! logits are wanted), so the same graph serves one token and a thousand. [`Plan`] places all values in one arena,
//! giving values that never live at the same time the same bytes; [`Graph::to_text`] and [`Graph::to_dot`] show both.

mod builder;
mod mixing;
mod plan;
mod print;
mod profile;

pub use backstitch_kv::Rotation;
pub use builder::{Builder, Linear};
pub use mixing::{Columns, DeltaParams, Mix, Sharing, WeightRow, Wkv6Params, Wkv7Params};
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

/// The most values that one operation's state depends on.
pub const MAX_INPUTS: usize = 6;

/// An operation. Values that it changes in place are both read and written.
#[derive(Clone, Debug)]
pub enum Op {
    /// `out[t] = table[row of token t] * scale`.
    Embed {
        /// Embedding matrix `[n_rows, n_embd]`.
        table: WeightId,
        /// Which row.
        by: RowOf,
        /// Factor of the table's rows; embeddings that a batch brings are taken as they are.
        scale: f32,
        /// Result.
        out: Value,
    },
    /// Sines and cosines of the tokens' positions.
    Angles {
        /// Which rotation.
        rope: RopeId,
        /// Result.
        out: Value,
    },
    /// Root-mean-square norm over groups of `group` columns.
    RmsNorm {
        /// Input.
        x: Value,
        /// Elementwise factor, if there is one: `[group]`, or `[width]` where groups have their own.
        weight: Option<WeightId>,
        /// Added to the mean square.
        eps: f32,
        /// Columns that are normalised together.
        group: usize,
        /// Result; may be `x`.
        out: Value,
    },
    /// Layer norm of each row: mean 0 and variance 1, times `weight`, plus `bias`.
    LayerNorm {
        /// Input.
        x: Value,
        /// `[width]`.
        weight: WeightId,
        /// `[width]`; none: nothing is added.
        bias: Option<WeightId>,
        /// Added to the variance.
        eps: f32,
        /// Result; may be `x`.
        out: Value,
    },
    /// Eight-bit blocks of a value, for products with quantised weights.
    Quantize {
        /// Input.
        x: Value,
        /// Result.
        out: Value,
    },
    /// Products of one input with one or more matrices.
    MatMul {
        /// Input, `[n_tokens, n_cols]`.
        x: Value,
        /// The matrices and where their results go.
        products: Vec<Product>,
    },
    /// `x += bias`, row by row.
    Bias {
        /// Changed in place.
        x: Value,
        /// `[width]`.
        bias: WeightId,
    },
    /// Rotates the heads of `x` by the tokens' positions.
    Rotate {
        /// Changed in place, `[n_tokens, n_head, d_head]`.
        x: Value,
        /// From [`Op::Angles`].
        angles: Value,
        /// Which rotation.
        rope: RopeId,
        /// Heads.
        n_head: usize,
    },
    /// Stores K and V in the layer's cache and attends over it.
    Attend {
        /// Layer of the memory.
        layer: usize,
        /// `[n_tokens, n_head, d_k]`.
        q: Value,
        /// `[n_tokens, n_head_kv, d_k]`.
        k: Value,
        /// `[n_tokens, n_head_kv, d_v]`.
        v: Value,
        /// `[n_tokens, n_head, d_v]`.
        out: Value,
        /// Query heads.
        n_head: usize,
        /// What becomes of the scores.
        scores: Scores,
        /// Terms of the scores by distance ([`WeightShape::Distances`]); none for most models.
        terms: Option<WeightId>,
    },
    /// Stores K and V of the text that is being encoded, for the decoder.
    StoreText {
        /// Layer of the memory.
        layer: usize,
        /// `[n_tokens, n_head_kv, d_k]`.
        k: Value,
        /// `[n_tokens, n_head_kv, d_v]`.
        v: Value,
    },
    /// Attends to all of the encoded text.
    Cross {
        /// Layer of the memory.
        layer: usize,
        /// `[n_tokens, n_head, d_k]`.
        q: Value,
        /// `[n_tokens, n_head, d_v]`.
        out: Value,
        /// Query heads.
        n_head: usize,
        /// What becomes of the scores.
        scores: Scores,
    },
    /// Causal convolution over each channel; carries its last inputs in the layer's state.
    Conv {
        /// The last inputs.
        state: StateId,
        /// `[n_tokens, n_channels]`.
        x: Value,
        /// Result.
        out: Value,
        /// Weights.
        params: ConvParams,
    },
    /// Mamba-1 recurrence.
    Selective {
        /// The state.
        state: StateId,
        /// `[n_tokens, n_channels]`.
        x: Value,
        /// Time steps before softplus, `[n_tokens, n_channels]`.
        dt: Value,
        /// B and C, `[n_tokens, d_state]` each.
        bc: [Value; 2],
        /// Decay, negative, `[d_state, n_channels]`.
        a: WeightId,
        /// Skip connection, `[n_channels]`.
        d: WeightId,
        /// `[n_tokens, n_channels]`.
        out: Value,
    },
    /// Mamba-2 recurrence.
    Ssd {
        /// The state.
        state: StateId,
        /// x, B and C side by side.
        xbc: Value,
        /// Time steps before bias and softplus, `[n_tokens, n_head]`.
        dt: Value,
        /// `[n_tokens, n_head, d_head]`.
        out: Value,
        /// Sizes and weights.
        params: SsdParams,
    },
    /// The row of the token before.
    Shift {
        /// The last token's row.
        state: StateId,
        /// `[n_tokens, width]`.
        x: Value,
        /// Result.
        out: Value,
    },
    /// Recurrence of RWKV 6 and the norm of its heads.
    Wkv6 {
        /// The state.
        state: StateId,
        /// Receptance, decay before its exponentials, keys and values, `[n_tokens, n_head, d_head]` each.
        rwkv: [Value; 4],
        /// `[n_tokens, n_head, d_head]`.
        out: Value,
        /// Sizes and weights.
        params: Wkv6Params,
    },
    /// Recurrence of RWKV 7 and the norm of its heads.
    Wkv7 {
        /// The state.
        state: StateId,
        /// Receptance, decay before its sigmoid, keys, values and the rate of learning before its sigmoid, `[n_tokens, n_head,
        /// d_head]` each.
        rwkva: [Value; 5],
        /// `[n_tokens, n_head, d_head]`.
        out: Value,
        /// Sizes and weights.
        params: Wkv7Params,
    },
    /// Gated delta rule.
    Delta {
        /// The state.
        state: StateId,
        /// Queries, keys and values side by side, `[n_tokens, 2 * n_head_k * d_k + n_head * d_v]`.
        qkv: Value,
        /// How much is learned, before its sigmoid, `[n_tokens, n_head]`.
        beta: Value,
        /// How much is forgotten, before bias and softplus, `[n_tokens, n_head]`.
        alpha: Value,
        /// `[n_tokens, n_head, d_v]`.
        out: Value,
        /// Sizes and weights.
        params: DeltaParams,
    },
    /// `out = x + (y - x) * mix`.
    Lerp {
        /// Where it starts.
        x: Value,
        /// Where it would end.
        y: Value,
        /// How far it goes.
        mix: Mix,
        /// Result.
        out: Value,
    },
    /// Copies some columns of every group of columns.
    Columns {
        /// `[n_rows, n_groups, group]`.
        x: Value,
        /// Which.
        columns: Columns,
        /// `[n_rows, n_groups, n]`.
        out: Value,
    },
    /// `x *= factor`.
    Scale {
        /// Changed in place.
        x: Value,
        /// The factor.
        factor: f32,
    },
    /// `x = activation(x)`.
    Activate {
        /// Which function.
        activation: Activation,
        /// Changed in place.
        x: Value,
    },
    /// `up *= activation(gate)`.
    Gate {
        /// Which function.
        activation: Activation,
        /// Input of the function, as wide as `up` or of one column for all of it.
        gate: Value,
        /// Changed in place.
        up: Value,
    },
    /// A mixture of experts: chooses by `router`, adds the weighed sum of the chosen networks to `out`.
    Experts {
        /// Input.
        x: Value,
        /// Router's logits, `[n_tokens, n_expert]`; changed in place.
        router: Value,
        /// Workspace of one token.
        scratch: Value,
        /// Changed in place.
        out: Value,
        /// Sizes and weights.
        params: ExpertParams,
    },
    /// `x += y`.
    Add {
        /// Changed in place.
        x: Value,
        /// The other summand.
        y: Value,
    },
    /// `x *= y`, element by element.
    Mul {
        /// Changed in place.
        x: Value,
        /// The other factor.
        y: Value,
    },
    /// Copies the rows whose output was asked for.
    Outputs {
        /// All rows.
        x: Value,
        /// The wanted ones.
        out: Value,
    },
    /// Scores of all tokens of the vocabulary, into the context's output buffer.
    Logits {
        /// `[n_outputs, n_embd]`.
        x: Value,
        /// `[n_vocab, n_embd]`.
        head: WeightId,
        /// Room for quantised rows of `x`; of no width if `head` takes floats.
        scratch: Value,
        /// The scores become `cap * tanh(score / cap)`; 0 for none.
        soft_cap: f32,
    },
    /// Copies rows into the context's output buffer: the embeddings of tokens.
    Embeddings {
        /// `[n_outputs, n_embd]`.
        x: Value,
    },
}

/// What a graph puts out for each token whose output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Scores of all tokens of the vocabulary.
    Logits,
    /// The last hidden state.
    Embeddings,
}

impl Op {
    /// Short name: the profile's row.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::Angles { .. } => "angles",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Quantize { .. } => "quantize",
            Op::MatMul { .. } => "matmul",
            Op::Bias { .. } => "bias",
            Op::Rotate { .. } => "rotate",
            Op::Attend { .. } => "attend",
            Op::StoreText { .. } => "store_text",
            Op::Cross { .. } => "cross",
            Op::Conv { .. } => "conv",
            Op::Selective { .. } => "selective",
            Op::Ssd { .. } => "ssd",
            Op::Shift { .. } => "shift",
            Op::Wkv6 { .. } => "wkv6",
            Op::Wkv7 { .. } => "wkv7",
            Op::Delta { .. } => "delta",
            Op::Lerp { .. } => "lerp",
            Op::Columns { .. } => "columns",
            Op::Scale { .. } => "scale",
            Op::Activate { .. } => "activate",
            Op::Gate { .. } => "gate",
            Op::Experts { .. } => "experts",
            Op::Add { .. } => "add",
            Op::Mul { .. } => "mul",
            Op::Outputs { .. } => "outputs",
            Op::Logits { .. } => "logits",
            Op::Embeddings { .. } => "embeddings",
        }
    }

    /// Calls `f` with every value that the operation reads (false) or writes (true).
    pub fn each_value(&self, mut f: impl FnMut(Value, bool)) {
        let mut io = |reads: &[Value], writes: &[Value]| {
            reads.iter().for_each(|&v| f(v, false));
            writes.iter().for_each(|&v| f(v, true));
        };
        match self {
            Op::Embed { out, .. } | Op::Angles { out, .. } => io(&[], &[*out]),
            Op::RmsNorm { x, out, .. }
            | Op::LayerNorm { x, out, .. }
            | Op::Shift { x, out, .. }
            | Op::Columns { x, out, .. }
            | Op::Quantize { x, out }
            | Op::Conv { x, out, .. }
            | Op::Outputs { x, out } => io(&[*x], &[*out]),
            Op::MatMul { x, products } => {
                io(&[*x], &[]);
                for p in products {
                    io(if p.add { core::slice::from_ref(&p.out) } else { &[] }, &[p.out]);
                }
            }
            Op::Bias { x, .. } | Op::Scale { x, .. } | Op::Activate { x, .. } => io(&[*x], &[*x]),
            Op::Wkv6 { rwkv, out, .. } => io(rwkv, &[*out]),
            Op::Wkv7 { rwkva, out, .. } => io(rwkva, &[*out]),
            Op::Delta { qkv, beta, alpha, out, .. } => io(&[*qkv, *beta, *alpha], &[*out]),
            Op::Lerp { x, y, mix, out } => {
                io(&[*x, *y], &[]);
                io(mix.value().as_slice(), &[*out]);
            }
            Op::Rotate { x, angles, .. } => io(&[*x, *angles], &[*x]),
            Op::Attend { q, k, v, out, .. } => io(&[*q, *k, *v], &[*out]),
            Op::StoreText { k, v, .. } => io(&[*k, *v], &[]),
            Op::Cross { q, out, .. } => io(&[*q], &[*out]),
            Op::Selective { x, dt, bc: [b, c], out, .. } => io(&[*x, *dt, *b, *c], &[*out]),
            Op::Ssd { xbc, dt, out, .. } => io(&[*xbc, *dt], &[*out]),
            Op::Gate { gate, up, .. } => io(&[*gate, *up], &[*up]),
            Op::Experts { x, router, scratch, out, .. } => {
                io(&[*x, *router, *out], &[*router, *scratch, *out]);
            }
            Op::Add { x, y } | Op::Mul { x, y } => io(&[*x, *y], &[*x]),
            Op::Logits { x, scratch, .. } => io(&[*x], &[*scratch]),
            Op::Embeddings { x } => io(&[*x], &[]),
        }
    }

    /// The piece of a recurrent state that the operation steps, and the values to journal for it: together with what
    /// operations replayed before it make, the weights and the old state, they are all that the new state depends on.
    pub fn state(&self) -> Option<(StateId, [Option<Value>; MAX_INPUTS])> {
        let mut inputs = [None; MAX_INPUTS];
        let mut enter = |values: &[Value]| inputs.iter_mut().zip(values).for_each(|(i, &v)| *i = Some(v));
        let state = match *self {
            Op::Conv { state, x, .. } => {
                enter(&[x]);
                state
            }
            Op::Selective { state, x, dt, bc: [b, _], .. } => {
                enter(&[x, dt, b]);
                state
            }
            Op::Ssd { state, xbc, dt, .. } => {
                enter(&[xbc, dt]);
                state
            }
            Op::Shift { state, x, .. } => {
                enter(&[x]);
                state
            }
            Op::Wkv6 { state, rwkv: [_, w, k, v], .. } => {
                enter(&[w, k, v]);
                state
            }
            Op::Wkv7 { state, rwkva: [_, w, k, v, a], .. } => {
                enter(&[w, k, v, a]);
                state
            }
            Op::Delta { state, qkv, beta, alpha, .. } => {
                enter(&[qkv, beta, alpha]);
                state
            }
            _ => return None,
        };
        for (i, input) in inputs.iter_mut().enumerate() {
            *input = input.filter(|_| state.journaled >> i & 1 == 1);
        }
        Some((state, inputs))
    }

    /// Calls `f` with every weight that the operation uses.
    pub fn each_weight(&self, mut f: impl FnMut(WeightId)) {
        let ids: &[WeightId] = match self {
            Op::Embed { table, .. } => &[*table],
            Op::RmsNorm { weight: Some(weight), .. } => &[*weight],
            Op::Attend { terms: Some(terms), .. } => &[*terms],
            Op::LayerNorm { weight, bias, .. } => {
                return [Some(*weight), *bias].into_iter().flatten().for_each(f);
            }
            Op::MatMul { products, .. } => return products.iter().map(|p| p.weight).for_each(f),
            Op::Bias { bias, .. } => &[*bias],
            Op::Conv { params: ConvParams { taps, bias: Some(bias), .. }, .. } => &[*taps, *bias],
            Op::Conv { params, .. } => &[params.taps],
            Op::Selective { a, d, .. } => &[*a, *d],
            Op::Ssd { params: p, .. } => &[p.dt_bias, p.a, p.d],
            Op::Wkv6 { params: p, .. } => &[p.first, p.norm[0], p.norm[1]],
            Op::Wkv7 { params: p, .. } => &[p.k_k, p.k_a, p.r_k, p.norm[0], p.norm[1]],
            Op::Delta { params: p, .. } => &[p.dt_bias, p.a],
            Op::Lerp { mix, .. } => return mix.weight().iter().for_each(|row| f(row.weight)),
            Op::Experts { params: p, .. } => &[p.gate, p.up, p.down],
            Op::Logits { head, .. } => &[*head],
            _ => &[],
        };
        ids.iter().copied().for_each(f);
    }
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
