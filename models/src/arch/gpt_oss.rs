//! gpt-oss (OpenAI, 2025, arXiv 2508.10925).
//!
//! Every other layer has a window, from the first on. Each head has a sink: one more score in its
//! softmax, without a value. Experts are chosen by their logits, and the softmax over the chosen
//! ones gives their weights; their gates have limits, and everything has biases. The norm in front
//! of the experts is named `post_attention_norm`. Matrices of experts are MXFP4 in the files that
//! people have.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, ExpertNetwork, Gating, Mixture, Routing},
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        ffn_norm: Some("post_attention_norm"),
        pattern: Pattern::Every(2),
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::SoftmaxOfChosen, ..Routing::PLAIN };
            let mixture = blocks::mixture(&h.experts(layer)?, routing);
            branch.add_mixture(b, x, Mixture { network: ExpertNetwork::ClampedSwish, ..mixture })
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
