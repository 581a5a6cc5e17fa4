//! Operations: what a step of a graph does, and what it reads, writes and carries from token to token.

use super::{
    Activation, Columns, ConvParams, DeltaParams, ExpertParams, Mix, Product, RopeId, RowOf, Scores,
    SsdParams, StateId, Value, WeightId, Wkv6Params, Wkv7Params,
};
use alloc::vec::Vec;

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
        /// Terms of the scores by distance ([`WeightShape::Distances`](super::WeightShape::Distances)); none for most models.
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
