//! Qwen 3 Next (Qwen team, 2025, model card Qwen/Qwen3-Next-80B-A3B-Instruct): gated delta rule and
//! gated attention, with a mixture of experts.
//!
//! Learning rate and decay of the delta rule come from one matrix (`ssm_ba`). Beside the experts
//! stands one that all tokens go through, behind a gate of its own (`ffn_*_shexp`); layers without
//! a router have a plain network.

use super::{
    blocks::{self, Ffn},
    delta_net::{self, Gates, Member},
};
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, ExpertWeights, Linear, Sharing, Value},
    hparams::{Hparams, LayerHparams, Ssm},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let (is_fixed, sharing) = (&|_| false, Sharing::Neighbours);
    delta_net::transformer(b, h, &Member { is_fixed, sharing, gates, feed_forward })
}

/// One matrix has both, for each head of keys first the learning rates and then the decays.
fn gates(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<Gates, Error> {
    let both = b.linear(x, Linear::new("ssm_ba", 2 * ssm.dt_rank))?;
    let n = ssm.dt_rank / ssm.n_group;
    let half = |first| Columns { first, n, group: 2 * n };
    Ok(Gates { beta: b.columns("beta", both, half(0)), alpha: b.columns("alpha", both, half(n)) })
}

fn feed_forward(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    residual: Value,
    x: Value,
) -> Result<(), Error> {
    let Some(experts) = h.experts.filter(|_| b.has("ffn_gate_inp.weight")) else {
        return blocks::add_network(b, Ffn::of_layer(layer), residual, x);
    };
    b.add_mixture(residual, x, blocks::mixture(&experts, ExpertWeights::Renormalised, 1.0))?;
    if !b.has("ffn_up_shexp.weight") {
        return Ok(());
    }
    let n_ff = if experts.n_ff_shared > 0 { experts.n_ff_shared } else { layer.n_ff };
    let y = blocks::network(b, h, Ffn::shared(n_ff), x)?;
    let gate = b.linear(x, Linear::new("ffn_gate_inp_shexp", 1))?;
    b.gate(Activation::Sigmoid, gate, y);
    b.add(residual, y);
    Ok(())
}
