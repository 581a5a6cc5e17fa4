//! Mixtures of experts: their numbers, and the workspace of a ubatch.

use super::{kind::Activation, value::quantized_width};
use backstitch_core::packed::BLOCK;

/// The numbers of a mixture-of-experts network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// The way from the router's logits to the chosen experts and their weights.
    pub routing: Routing,
    /// The network of each expert.
    pub network: ExpertNetwork,
    /// The optional tensors that the file has.
    pub tensors: ExpertTensors,
    /// True if the sum is added to what the result holds (the residual stream), which is read too
    /// then.
    pub add: bool,
}

/// The way from the router's logits to the chosen experts and their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// The function of the logits that weights are taken from.
    pub gating: Gating,
    /// True if the weights of the chosen experts are divided by their sum.
    pub is_renormalised: bool,
    /// Factor of all weights.
    pub scale: f32,
    /// Groups of neighbouring experts, of which the best are chosen first; none: there are none.
    pub groups: Option<ExpertGroups>,
    /// True if weights are factors of what the experts read, not of what they return.
    pub is_before: bool,
}

impl Routing {
    /// Softmax over all experts, the weights of the chosen ones divided by their sum.
    pub const RENORMALISED: Self = Routing {
        gating: Gating::Softmax,
        is_renormalised: true,
        scale: 1.0,
        groups: None,
        is_before: false,
    };
    /// Softmax over all experts.
    pub const PLAIN: Self = Routing { is_renormalised: false, ..Self::RENORMALISED };
}

/// A function of the router's logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// The logits choose, and softmax over the chosen ones gives the weights.
    SoftmaxOfChosen,
}

/// Groups of neighbouring experts. The two best experts of a group make its score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups; they divide the experts.
    pub n_group: usize,
    /// Groups whose experts can be chosen.
    pub n_used: usize,
}

/// The network of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertNetwork {
    /// `down(activation(gate(x)) * up(x))`.
    Gated(Activation),
    /// The gate of gpt-oss: both factors have limits, and `up` counts from -1.
    ClampedSwish,
    /// `down(activation(up(x)))`.
    Plain(Activation),
}

impl ExpertNetwork {
    /// Return true if the network has gate matrices.
    pub const fn has_gate(self) -> bool {
        !matches!(self, ExpertNetwork::Plain(_))
    }
}

/// The optional tensors of a mixture of experts that a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertTensors {
    /// Biases that take part in the choice of experts, and not in their weights.
    pub has_selection_bias: bool,
    /// Biases of the experts' products.
    pub has_biases: bool,
    /// A factor of each expert's result.
    pub has_factors: bool,
}

/// Widths of one *pair*, a token with one of its experts, in the workspace of a ubatch, in `f32`s.
///
/// The workspace holds each piece for all pairs, piece behind piece; the pairs of an expert are
/// neighbours, so that its products take many rows at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertScratch {
    /// The input of a matrix in 8-bit blocks; 0 if no row is a whole number of them.
    pub(crate) blocks: usize,
    /// The results of gate and up, each.
    pub(crate) hidden: usize,
    /// The input in floats, and later the result.
    pub(crate) row: usize,
}

impl ExpertScratch {
    /// Return the widths for experts of `n_ff` between rows of `n_in` and `n_out`.
    pub(crate) fn new(n_in: usize, n_ff: usize, n_out: usize) -> Self {
        let blocks_of = |n: usize| if n.is_multiple_of(BLOCK) { quantized_width(n) } else { 0 };
        let blocks = blocks_of(n_in).max(blocks_of(n_ff));
        ExpertScratch { blocks, hidden: n_ff, row: n_in.max(n_out) }
    }

    /// Return the width of all pieces: these, and the expert, its weight, and the places of both.
    pub(crate) fn width(self) -> usize {
        4 + self.blocks + 2 * self.hidden + self.row
    }
}
