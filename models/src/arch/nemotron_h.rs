//! Nemotron-H (NVIDIA, 2025, arXiv 2504.03624) and its later models with experts: layers of one
//! branch each, a Mamba-2 mixer, a network or attention.
//!
//! `feed_forward_length` and `attention.head_count_kv` have an element a layer. A layer with a
//! width is a network without a gate, of squared rectifiers; of the others those with KV heads
//! attend, and the rest are mixers. Attention knows no positions: the mixers carry the order.
//! Experts are networks of the same kind beside one for all tokens (`ffn_*_shexp`), chosen by
//! sigmoids; some files have them between projections (`ffn_latent_*`).

use super::{
    blocks,
    decoder::{AttentionSpec, Branch, Decoder},
    mamba2,
};
use crate::{
    error::Error,
    graph::{Activation, Builder, ExpertNetwork, Gating, Linear, Mixture, Routing, Value},
    hparams::{Experts, Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let attends = layer.attends() && layer.n_ff == 0;
        b.layer(attends.then(|| blocks::cells(&layer, None)));
        let normed = b.norm(x, blocks::rms_norm(h, "attn_norm"))?;
        if layer.n_ff > 0 {
            let [normed, stream] = b.last_outputs(layer.is_last, [normed, x]);
            x = stream;
            network(b, h, &layer, normed, x)?;
            b.end_layer(x);
            continue;
        }
        let (mixed, output) = match attends {
            true => {
                let spec = AttentionSpec { h, layer: &layer, choices: &Decoder::LLAMA, rope: None };
                (blocks::attention(b, spec, normed)?, "attn_output")
            }
            false => (mamba2::mixer(b, h, normed)?, "ssm_out"),
        };
        let [mixed, stream] = b.last_outputs(layer.is_last, [mixed, x]);
        x = stream;
        b.add_linear(x, mixed, output)?;
        b.end_layer(x);
    }
    blocks::head(b, h, x)
}

/// Add a layer's network to `stream`; where the layer has a router, a mixture of such.
fn network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    stream: Value,
) -> Result<(), Error> {
    let Some(experts) = h.experts_of(layer).filter(|_| b.has("ffn_gate_inp.weight")) else {
        return blocks::squared_relu_network(b, h, layer, x, Branch::to(stream));
    };
    add_experts(b, &experts, x, stream)?;
    let n_ff = b.rows_of("ffn_up_shexp.weight")?;
    let up = b.linear(x, Linear::new("ffn_up_shexp", n_ff))?;
    b.activate(Activation::SquaredRelu, up);
    b.add_linear(stream, up, "ffn_down_shexp")
}

/// Add the experts of a layer to `stream`. The router reads what stands before the projections.
fn add_experts(b: &mut Builder<'_, '_>, experts: &Experts, x: Value, stream: Value) -> Result<(), Error> {
    let routing = Routing { gating: Gating::Sigmoid, ..Routing::PLAIN };
    let network = ExpertNetwork::Plain(Activation::SquaredRelu);
    let mixture = Mixture { network, ..blocks::mixture(experts, routing) };
    if !b.has("ffn_latent_down.weight") {
        return b.add_mixture(stream, x, mixture);
    }
    let logits = Some(b.linear(x, Linear::new("ffn_gate_inp", experts.n_expert))?);
    let n_latent = b.rows_of("ffn_latent_down.weight")?;
    let latent = b.linear(x, Linear::new("ffn_latent_down", n_latent))?;
    let y = b.mixture(latent, Mixture { logits, ..mixture })?;
    b.add_linear(stream, y, "ffn_latent_up")
}
