//! The family of Qwen 3.5 and Qwen 3 Next: the gated delta rule (Yang, Kautz and Hatamizadeh, 2024,
//! arXiv 2412.06464) in most layers, gated attention in every n-th (`full_attention_interval`), or
//! in those that the file lists (`attention.recurrent_layers` lists the others).
//!
//! The recurrence reuses the keys of state-space models: `ssm.time_step_rank` heads of values,
//! `ssm.group_count` heads of queries and keys, `ssm.state_size` keys of a head. Queries of the
//! attention layers come with a gate for each head, in one matrix. Only part of a head rotates.

use super::{
    blocks,
    decoder::{AttentionSpec, Decoder},
};
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, DeltaInputs, DeltaSizes, Linear, Norm, Qkv, Sharing, Value},
    hparams::{Hparams, Ssm},
};

/// One of so many layers attends, unless the file says otherwise.
const ATTENTION_INTERVAL: usize = 4;

/// The inputs of the rule: queries, keys and values, learning rate and decay of each head before
/// their functions, and the gate of its output.
pub(super) struct Inputs {
    pub(super) delta: DeltaInputs,
    pub(super) z: Value,
}

/// The choices of the family, but for the mixer.
pub(super) const DECODER: Decoder = Decoder {
    ffn_norm: Some("post_attention_norm"),
    attends: |h, layer| match h.is_recurrent(layer) {
        Some(is_recurrent) => !is_recurrent,
        None => (layer.il + 1).is_multiple_of(h.full_attention_interval.unwrap_or(ATTENTION_INTERVAL)),
    },
    attention,
    ..Decoder::SPLIT
};

/// Return attention up to, not including, its output projection: queries come with a gate for each
/// head.
fn attention(b: &mut Builder<'_, '_>, spec: AttentionSpec<'_>, x: Value) -> Result<Value, Error> {
    let AttentionSpec { h, layer, choices, rope } = spec;
    h.check_heads_alike(layer)?;
    let linears = [
        Linear::new("attn_q", 2 * layer.n_q()),
        Linear::new("attn_k", layer.n_k()),
        Linear::new("attn_v", layer.n_v()),
    ];
    let [both, k, v] = b.linears(x, linears)?;
    let half = |first| Columns { first, n: layer.d_k, group: 2 * layer.d_k };
    let (q, gate) = (b.columns("q", both, half(0)), b.columns("gate", both, half(layer.d_k)));
    b.norm_in_place(q, (choices.head_norm)(h, layer, "attn_q_norm"))?;
    b.norm_in_place(k, (choices.head_norm)(h, layer, "attn_k_norm"))?;
    let qkv = Qkv { q, k, v };
    blocks::rotate(b, layer, qkv, rope);
    let y = b.attend(qkv, (choices.scores)(h, layer));
    Ok(b.gate(Activation::Sigmoid, gate, y))
}

/// Return queries, keys and values, and the gate of the output, from a matrix each.
pub(super) fn qkv_and_gate(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<[Value; 2], Error> {
    b.linears(x, [Linear::new("attn_qkv", ssm.n_channels()), Linear::new("attn_gate", ssm.d_inner)])
}

/// Return the gated delta rule up to, not including, its output projection, and the name of that.
/// A head of values uses a head of queries and keys by `sharing`.
pub(super) fn mixer(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    sharing: Sharing,
    inputs: fn(&mut Builder<'_, '_>, &Ssm, Value) -> Result<Inputs, Error>,
) -> Result<(Value, &'static str), Error> {
    let ssm = h.ssm_heads()?;
    let Inputs { mut delta, z } = inputs(b, &ssm, x)?;
    delta.qkv = b.conv(delta.qkv, "ssm_conv1d", ssm.d_conv, true)?;
    let sizes = DeltaSizes {
        n_head: ssm.dt_rank,
        n_head_k: ssm.n_group,
        sharing,
        d_k: ssm.d_state,
        d_v: ssm.d_inner / ssm.dt_rank,
        eps: h.norm_rms_eps,
    };
    let y = b.delta(delta, sizes)?;
    b.norm_in_place(y, Norm::heads("ssm_norm", h.norm_rms_eps, sizes.d_v))?;
    Ok((b.gate(Activation::Silu, z, y), "ssm_out"))
}
