//! Qwen 3 Next (Qwen team, 2025, model card Qwen/Qwen3-Next-80B-A3B-Instruct): gated delta rule and
//! gated attention, with a mixture of experts.
//!
//! Learning rate and decay of the delta rule come from one matrix (`ssm_ba`). Beside the experts
//! stands one that all tokens go through, behind a gate of its own (`ffn_*_shexp`); layers without
//! a router have a plain network.

use super::{
    decoder::Decoder,
    delta_net::{self, Inputs},
};
use crate::{
    error::Error,
    graph::{Builder, Columns, DeltaInputs, Linear, Part, Sharing, Value},
    hparams::{Hparams, Ssm},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        mixer: |b, h, _, x| delta_net::mixer(b, h, x, Sharing::Neighbours, inputs),
        ..delta_net::DECODER
    };
    decoder.build(b, h)
}

/// One matrix has the gates, for each head of keys first the learning rates and then the decays.
fn inputs(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<Inputs, Error> {
    let is_mixed = b.has("ssm_in.weight");
    let [qkv, z] = if is_mixed { mixed(b, ssm, x)? } else { delta_net::qkv_and_gate(b, ssm, x)? };
    let both = b.linear(x, Linear::new("ssm_ba", 2 * ssm.dt_rank))?;
    let n = ssm.dt_rank / ssm.n_group;
    let half = |first| Columns { first, n, group: 2 * n };
    let [beta, alpha] = [b.columns("beta", both, half(0)), b.columns("alpha", both, half(n))];
    Ok(Inputs { delta: DeltaInputs { qkv, beta, alpha }, z })
}

/// The first files have one matrix instead of `attn_qkv` and `attn_gate`: for each head of keys its
/// query and key, and the values and output gates of the heads that use them.
fn mixed(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<[Value; 2], Error> {
    let (d_k, n_v) = (ssm.d_state, ssm.d_inner / ssm.n_group);
    let mixed = b.linear(x, Linear::new("ssm_in", ssm.n_channels() + ssm.d_inner))?;
    let of_heads = |first, n| Columns { first, n, group: 2 * (d_k + n_v) };
    let q = b.columns("q", mixed, of_heads(0, d_k));
    let k = b.columns("k", mixed, of_heads(d_k, d_k));
    let v = b.columns("v", mixed, of_heads(2 * d_k, n_v));
    let z = b.columns("z", mixed, of_heads(2 * d_k + n_v, n_v));
    let qk = b.join("qk", 1, [Part::Each(q), Part::Each(k)]);
    Ok([b.join("qkv", 1, [Part::Each(qk), Part::Each(v)]), z])
}
