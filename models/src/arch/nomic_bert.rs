//! Nomic Embed (Nussbaum et al., 2024, arXiv 2402.01613; version 2: 2025, arXiv 2502.07972), and
//! Jina Embeddings 3 (Sturua et al., 2024, arXiv 2409.10173).
//!
//! Positions are rotations. The network has a gate; in version 2 it has none, and every other layer
//! (`moe_every_n_layers`) has experts, whose weights are not renormalised.

use super::{blocks, decoder::FeedForward, encoder::Encoder, rope};
use crate::{
    error::Error,
    graph::{Activation, Builder, ExpertNetwork, Mixture, Routing},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    encoder(blocks::gated_network).build(b, h)
}

/// Describe Jina Embeddings 3, whose network has no gate.
pub(super) fn build_plain(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    encoder(blocks::gelu_network).build(b, h)
}

/// Describe version 2.
pub(super) fn build_experts(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let encoder = encoder(|b, h, layer, x, branch| {
        let Some(experts) = h.experts_of(layer).filter(|_| b.has("ffn_gate_inp.weight")) else {
            return blocks::gelu_network(b, h, layer, x, branch);
        };
        let network = ExpertNetwork::Plain(Activation::Gelu);
        // Experts read what they are added to.
        let y = b.mixture(x, Mixture { network, ..blocks::mixture(&experts, Routing::PLAIN) })?;
        branch.add(b, y)
    });
    encoder.build(b, h)
}

fn encoder(feed_forward: FeedForward) -> Encoder {
    let rope =
        |b: &mut Builder<'_, '_>, h: &Hparams, layer: &_, pairs| rope::of_layer(b, h, layer, pairs).map(Some);
    Encoder { rope, scores: Encoder::SCORES, feed_forward }
}
