//! Mixtures of experts: their numbers, and the workspace of one token.

use super::value::quantized_width;

/// The scale of the weights of chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertWeights {
    /// Softmax over all experts, then divided by the sum over the chosen ones.
    Renormalised,
    /// Softmax over all experts.
    Plain,
}

/// The numbers of a mixture-of-experts network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// The scale of the chosen experts' weights.
    pub weights: ExpertWeights,
    /// Factor of all weights.
    pub scale: f32,
}

/// Offsets of the pieces of one token's workspace, in `f32`s. The quantised input starts at 0, the
/// other pieces where the fields say; `result` ends at `end`.
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
