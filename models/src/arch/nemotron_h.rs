//! Nemotron-H (NVIDIA, 2025, arXiv 2504.03624): layers of one branch each, a Mamba-2 mixer, a
//! network or attention.
//!
//! `feed_forward_length` and `attention.head_count_kv` have an element a layer. A layer with a
//! width is a network without a gate, of squared rectifiers, or a mixture of such, chosen by sigmoids
//! with a bias; of the others those with KV heads attend, and the rest are mixers. Attention knows no positions: the mixers carry the order.

use super::{
    blocks,
    decoder::{Branch, Decoder},
    mamba2,
};
use crate::{
    error::Error,
    graph::{Activation, Builder, ExpertNetwork, Gating, Linear, Mixture, Routing, Value},
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let attends = layer.attends() && layer.n_ff == 0;
        b.layer(attends.then(|| blocks::cells(&layer, None)));
        let normed = b.norm(x, blocks::rms_norm(h, "attn_norm"))?;
        if layer.n_ff > 0 {
            let [normed, residual] = b.last_outputs(layer.is_last, [normed, x]);
            x = residual;
            network(b, h, &layer, normed, Branch::to(x))?;
            continue;
        }
        let (mixed, output) = match attends {
            true => (blocks::attention(b, h, &layer, &Decoder::LLAMA, normed, None)?, "attn_output"),
            false => (mamba2::mixer(b, h, normed)?, "ssm_out"),
        };
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, output)?;
    }
    blocks::head(b, h, x)
}

/// Add a network, or a mixture of such and the network beside it.
fn network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    branch: Branch,
) -> Result<(), Error> {
    const ACTIVATION: Activation = Activation::SquaredRelu;
    let Some(experts) = h.experts.filter(|_| b.has("ffn_gate_inp.weight")) else {
        return blocks::plain_network(b, h, layer, x, branch, ACTIVATION);
    };
    let routing = Routing { gating: Gating::Sigmoid, ..Routing::PLAIN };
    let network = ExpertNetwork::Plain(ACTIVATION);
    branch.add_mixture(b, x, Mixture { network, ..blocks::mixture(&experts, routing) })?;
    let up = b.linear(x, Linear::new("ffn_up_shexp", b.rows_of("ffn_up_shexp.weight")?))?;
    b.activate(ACTIVATION, up);
    branch.add_linear(b, h, up, "ffn_down_shexp")
}
