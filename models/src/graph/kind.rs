//! Kinds of operations, with the numbers that are the same for every token.
//!
//! A kind holds no operands. Those stand in the [`Step`](super::Step), in the order that the kind's
//! documentation gives: `reads`, `writes`, `weights`. A value that is changed in place stands in
//! `reads` and in `writes`. `[...]` marks shapes; `width` is that of the first value written.

use super::{experts::ExpertSizes, rotation::RopeId};
pub use backstitch_core::scan::Sharing;

/// The kind of an operation, and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A row of a table for each token, times `scale`.
    ///
    /// Writes the rows, `[n_tokens, n_embd]`. Weights: the table, `[n_rows, n_embd]`.
    Embed {
        /// The row that a token gets.
        by: RowOf,
        /// Factor of the table's rows; embeddings that a batch brings are taken as they are.
        scale: f32,
    },
    /// Sines and cosines of the tokens' positions.
    ///
    /// Writes them, `[n_tokens, 2 * n_rot]`.
    Angles(RopeId),
    /// Root-mean-square norm over groups of columns.
    ///
    /// Reads x. Writes the result, which may be x. Weights: the factor, `[group]` for all groups or
    /// `[width]`; may be absent.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
        /// Columns that are normalised together.
        group: usize,
    },
    /// Layer norm over groups of columns: mean 0 and variance 1, then a factor and a bias.
    ///
    /// Reads x. Writes the result, which may be x. Weights: the factor, `[group]` for all groups or
    /// `[width]`, and the bias, of the same shape; the bias or both may be absent.
    LayerNorm {
        /// Added to the variance.
        eps: f32,
        /// Columns that are normalised together.
        group: usize,
    },
    /// A value in 8-bit blocks, for products with quantised weights.
    ///
    /// Reads x. Writes the blocks.
    Quantize,
    /// Products of each head of x with a matrix of its own.
    ///
    /// Reads x, `[n_tokens, n_head, d_in]`. Writes the result, `[n_tokens, n_head, d_out]`, and the
    /// workspace of all tokens. Weights: the matrices, `[n_head, d_out, d_in]`.
    MatMulHeads {
        /// Heads.
        n_head: usize,
    },
    /// Products of one input with one or more matrices.
    ///
    /// Reads x, `[n_tokens, n_cols]`. Writes a result for each matrix. Weights: the matrices.
    MatMul {
        /// True if the products are added to what the results hold (the residual stream); the
        /// results are read too, then.
        add: bool,
    },
    /// `x += bias`, row by row.
    ///
    /// Changes x. Weights: the bias, of which columns from `first` on are used.
    Bias {
        /// The element of the bias that meets the first column.
        first: usize,
    },
    /// Rotation of the heads of x by the tokens' positions.
    ///
    /// Reads x, `[n_tokens, n_head, d_head]`, and what [`Kind::Angles`] wrote. Writes x.
    Rotate {
        /// The rotation.
        rope: RopeId,
        /// Heads.
        n_head: usize,
    },
    /// Keys and values, into the cells of a cache.
    ///
    /// Reads k, `[n_tokens, n_head_kv, d_k]`, and v, `[n_tokens, n_head_kv, d_v]`. Carries cells.
    StoreKv,
    /// Attention over the cells of a cache.
    ///
    /// Reads q, `[n_tokens, n_head, d_k]`. Writes the result, `[n_tokens, n_head, d_v]`. Weights: a
    /// table of relative position biases, and a sink for each head, `[n_head]`; each may be absent.
    /// Carries cells.
    Attend {
        /// Query heads.
        n_head: usize,
        /// The treatment of scores before their softmax.
        scores: Scores,
    },
    /// Causal convolution over each channel.
    ///
    /// Reads x, `[n_tokens, n_channels]`. Writes the result. Weights: the taps, `[d_conv,
    /// n_channels]`, whose last row meets the current token, and the bias, which may be absent.
    /// Carries the last `d_conv - 1` inputs.
    Conv {
        /// True if SiLU follows.
        silu: bool,
    },
    /// The selective scan of Mamba-1.
    ///
    /// Reads x and time steps before softplus, `[n_tokens, n_channels]` each, then B and C,
    /// `[n_tokens, d_state]` each. Writes `[n_tokens, n_channels]`. Weights: the decay, negative,
    /// `[d_state, n_channels]`, and the skip connection, `[n_channels]`. Carries a state.
    Selective,
    /// The recurrence of Mamba-2.
    ///
    /// Reads x, B and C, side by side in one value or in three, then time steps before bias and
    /// softplus, `[n_tokens, n_head]`. Writes `[n_tokens, n_head, d_head]`. Weights, `[n_head]`
    /// each: the bias of the time step, the decay (negative), the skip connection. Carries a state.
    Ssd(SsdSizes),
    /// For each token the row of the token before it.
    ///
    /// Reads x. Writes the rows. Carries the last row.
    Shift,
    /// The recurrence of RWKV 6 and the norm of its heads.
    ///
    /// Reads receptance, decay before its exponentials, keys and values, `[n_tokens, n_head,
    /// d_head]` each. Writes the same shape. Weights, `[n_head, d_head]` each: the share of a
    /// token's own value, and the factor and bias of the norm. Carries a state.
    Wkv6(WkvSizes),
    /// The recurrence of RWKV 7 and the norm of its heads.
    ///
    /// Reads receptance, decay before its sigmoid, keys, values and the learning rate before its
    /// sigmoid, `[n_tokens, n_head, d_head]` each. Writes the same shape. Weights, `[n_head,
    /// d_head]` each: the factor of the key that is removed, the influence of the learning rate on
    /// the key that is stored, the share of a token's own value, and the factor and bias of the
    /// norm; the last two may be absent. Carries a state.
    Wkv7(WkvSizes),
    /// Gated linear attention.
    ///
    /// Reads receptance and decay before its exponentials, `[n_tokens, n_head, d_head]` each, then
    /// keys and values, `[n_tokens, n_head_kv, d_head]` each. Writes the shape of receptance.
    /// Carries a state.
    Gla(GlaSizes),
    /// Kimi delta attention.
    ///
    /// Reads queries and keys, `[n_tokens, n_head, d_k]` each, values, `[n_tokens, n_head, d_v]`,
    /// the learning rate before its sigmoid, `[n_tokens, n_head]`, and the decay before bias and
    /// softplus, `[n_tokens, n_head, d_k]`. Writes `[n_tokens, n_head, d_v]`. Weights: the bias of
    /// the decay, `[n_head, d_k]`, and the decay (negative), `[n_head]`. Carries a state.
    Kda(KdaSizes),
    /// The gated delta rule.
    ///
    /// Reads queries, keys and values side by side, `[n_tokens, 2 * n_head_k * d_k + n_head *
    /// d_v]`, the learning rate before its sigmoid and the decay before bias and softplus,
    /// `[n_tokens, n_head]` each. Writes `[n_tokens, n_head, d_v]`. Weights, `[n_head]` each: the
    /// bias of the decay, and the decay (negative). Carries a state.
    Delta(DeltaSizes),
    /// `out = x + (y - x) * mix`.
    ///
    /// Reads x, y and, where tokens have a mix of their own, that; writes the result. Weights: a
    /// vector of mixes by column, of which row `row` is used; may be absent. If both are there,
    /// they are added.
    Lerp {
        /// The row of the vector weight.
        row: usize,
    },
    /// Some columns of every group of columns.
    ///
    /// Reads x, `[n_rows, n_groups, group]`. Writes `[n_rows, n_groups, n]`.
    Columns(Columns),
    /// The columns of two values in turns: of every group first those of x, then those of y.
    ///
    /// Reads x, `[n_rows, n_groups, n_x]`, and y, `[n_rows, n_groups, n_y]`; one that is the same
    /// for all groups has one. Writes `[n_rows, n_groups, n_x + n_y]`.
    Join {
        /// Groups.
        n_groups: usize,
        /// Columns of x in a group.
        n_x: usize,
    },
    /// `x *= factor`. Changes x. Weights: another factor, `[1]`, which may be absent.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// `x *= factor`, but where embeddings are asked for in the place of logits. Changes x.
    ScaleForLogits {
        /// The factor.
        factor: f32,
    },
    /// `x *= f(position)`, row by row. Changes x.
    ScaleByPosition(Temperature),
    /// `x = max(-limit, min(limit, x))`. Changes x.
    Clamp {
        /// The limit.
        limit: f32,
    },
    /// `x = activation(x)`. Changes x.
    Activate(Activation),
    /// `up *= activation(gate)`.
    ///
    /// Reads gate, as wide as `up` or of one column for all of it, and up. Writes up.
    Gate(Activation),
    /// A mixture of experts: chooses by the router, adds the weighed sum of the chosen networks.
    ///
    /// Reads x and the router's logits, `[n_tokens, n_expert]`, and the result if it is added to.
    /// Writes the router's logits (they are used up), the workspace of all tokens, and the result.
    /// Weights: up and down matrices of all experts; then, as the sizes say, their gate matrices;
    /// biases of the selection, `[n_expert]`; biases of up, down and gate, `[n_expert, n_rows]`
    /// each; factors of the results, `[n_expert]`.
    Experts(ExpertSizes),
    /// `x += y`. Reads x and y, writes x.
    Add,
    /// `x *= y`, element by element. Reads x and y, writes x.
    Mul,
    /// A copy of the rows whose output was asked for. Reads all rows, writes those.
    SelectOutputs,
    /// Scores of all tokens of the vocabulary, into the context's rows.
    ///
    /// Reads x, `[n_outputs, n_embd]`. Writes room for quantised rows of x, of no width if the
    /// matrix takes floats. Weights: the matrix, `[n_vocab, n_embd]`, and a bias, `[n_vocab]`,
    /// which may be absent.
    Logits {
        /// The scores become `cap * tanh(score / cap)`; none: they stay.
        soft_cap: Option<f32>,
    },
    /// A copy of x, `[n_outputs, n_embd]`, into the context's rows: the embeddings of tokens.
    ///
    /// Reads x.
    Embeddings,
}

/// A function of one number, alone or as the gate of a feed-forward network.
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

/// The row of a table that a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOf {
    /// The token's own row. A batch of embeddings brings the rows itself.
    Token,
    /// The token's own row; in a batch of embeddings the first row.
    TokenOrFirst,
    /// The row of its position.
    Position,
    /// The first row: all tokens are of the first kind.
    First,
}

/// The treatment of products of queries and keys before their softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Their factor.
    pub scale: f32,
    /// After that they become `cap * tanh(score / cap)`; none: they stay.
    pub soft_cap: Option<f32>,
    /// After the factor they fall with the distance to the cell, by a slope of each head
    /// ([`BiasRule::Slopes`](backstitch_core::attention::BiasRule)); none: they do not.
    pub max_alibi_bias: Option<f32>,
}

/// The factor of queries that grows with the logarithm of the position, once a floor is reached:
/// `1 + scale * ln(1 + floor((pos + offset) / floor_scale))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// Positions that share a factor.
    pub floor_scale: u32,
    /// The growth of the factor.
    pub scale: f32,
    /// Added to positions.
    pub offset: f32,
}

impl Scores {
    /// Scores times `scale`, without a cap or slopes.
    pub const fn scaled(scale: f32) -> Self {
        Scores { scale, soft_cap: None, max_alibi_bias: None }
    }
}

/// The numbers of [`Kind::Ssd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsdSizes {
    /// Heads.
    pub n_head: usize,
    /// Channels a head.
    pub d_head: usize,
    /// Groups that share B and C.
    pub n_group: usize,
    /// State size a channel.
    pub d_state: usize,
}

/// Some columns of every group of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The first of a group.
    pub first: usize,
    /// Columns taken of a group; those from `first` on are in the group.
    pub n: usize,
    /// Columns of a group, not 0.
    pub group: usize,
}

/// The numbers of [`Kind::Wkv6`] and [`Kind::Wkv7`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WkvSizes {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// Added to the variance of a head.
    pub eps: f32,
}

/// The numbers of [`Kind::Delta`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaSizes {
    /// Heads of values, gates and states.
    pub n_head: usize,
    /// Heads of queries and keys.
    pub n_head_k: usize,
    /// The head of queries and keys that a head of values uses.
    pub sharing: Sharing,
    /// Keys of a head.
    pub d_k: usize,
    /// Values of a head.
    pub d_v: usize,
    /// Added to the square of a query's or key's length.
    pub eps: f32,
}

/// The numbers of [`Kind::Gla`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlaSizes {
    /// Heads of receptance, decay and states.
    pub n_head: usize,
    /// Heads of keys and values, which neighbours share.
    pub n_head_kv: usize,
    /// Keys and values of a head.
    pub d_head: usize,
}

/// The numbers of [`Kind::Kda`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KdaSizes {
    /// Heads.
    pub n_head: usize,
    /// Keys of a head.
    pub d_k: usize,
    /// Values of a head.
    pub d_v: usize,
    /// The least length of a query or key.
    pub eps: f32,
}
