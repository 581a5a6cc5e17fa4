//! Qwen 3 Next: gated delta rule and gated attention, a mixture of experts with one that all tokens go through.

use super::{
    Arch, blocks,
    delta_net::{self, Member},
};
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, ExpertWeights, Sharing, Value},
    hparams::{Hparams, Ssm},
};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "qwen3next", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Split)?;
    delta_net::transformer(b, h, &Member { rope, sharing: Sharing::Neighbours, gates, feed_forward })
}

/// One matrix has both, for each head of keys first how much is learned and then how much is forgotten.
fn gates(b: &mut Builder<'_, '_>, h: &Hparams, ssm: &Ssm, x: Value) -> Result<[Value; 2], Error> {
    let both = b.linear("ssm_ba", 2 * ssm.dt_rank, h.n_embd)?;
    let [both] = b.linears(x, [both], ["beta_alpha"]);
    let n = ssm.dt_rank / ssm.n_group;
    let half = |first| Columns { first, n, group: 2 * n };
    Ok([b.columns("beta", both, half(0)), b.columns("alpha", both, half(n))])
}

fn feed_forward(b: &mut Builder<'_, '_>, h: &Hparams, residual: Value, x: Value) -> Result<(), Error> {
    let Some(experts) = h.experts.filter(|_| b.has("ffn_gate_inp.weight")) else {
        return blocks::network(b, h, residual, x);
    };
    blocks::mixture(b, h, &experts, [residual, x], ExpertWeights::Renormalised, 1.0)?;
    if !b.has("ffn_up_shexp.weight") {
        return Ok(());
    }
    // The expert of all tokens has a gate of its own.
    let n_ff = if experts.n_ff_shared > 0 { experts.n_ff_shared } else { h.n_ff };
    let product = blocks::gated(b, h, x, ["ffn_gate_shexp", "ffn_up_shexp"], n_ff)?;
    let (down, gate) = (b.linear("ffn_down_shexp", h.n_embd, n_ff)?, b.row("ffn_gate_inp_shexp.weight", x)?);
    let [y] = b.linears(product, [down], ["shared"]);
    let [gate] = b.linears(x, [gate], ["shared_gate"]);
    b.gate(Activation::Sigmoid, gate, y);
    b.add(residual, y);
    Ok(())
}
