//! The family of Qwen 3.5 and Qwen 3 Next: the gated delta rule (Yang, Kautz and Hatamizadeh, 2024,
//! arXiv 2412.06464) in most layers, gated attention in every n-th (`full_attention_interval`).
//!
//! The recurrence reuses the keys of state-space models: `ssm.time_step_rank` heads of values,
//! `ssm.group_count` heads of queries and keys, `ssm.state_size` keys of a head. Queries of the
//! attention layers come with a gate for each head, in one matrix. Only part of a head rotates.

use super::{blocks, rope};
use crate::{
    error::Error,
    graph::{
        Activation, Builder, Columns, DeltaInputs, DeltaSizes, Linear, Norm, Qkv, RopeId, Scores, Sharing,
        Value,
    },
    hparams::{Hparams, LayerHparams, Ssm},
};
use backstitch_core::rope::Pairs;

/// One of so many layers attends, unless the file says otherwise.
const ATTENTION_INTERVAL: usize = 4;

/// The differences between members of the family.
pub(super) struct Member<'m> {
    /// Pairs of a head's dimensions that do not turn.
    pub(super) is_fixed: &'m dyn Fn(usize) -> bool,
    /// The head of queries and keys that a head of values uses.
    pub(super) sharing: Sharing,
    /// Learning rate and decay, before their functions, for each head.
    pub(super) gates: fn(&mut Builder<'_, '_>, &Ssm, Value) -> Result<Gates, Error>,
    /// Adds the network over the second value to the first.
    pub(super) feed_forward: FeedForward,
}

/// Learning rate and decay of each head.
pub(super) struct Gates {
    pub(super) beta: Value,
    pub(super) alpha: Value,
}

pub(super) type FeedForward =
    fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Value, Value) -> Result<(), Error>;

/// Describe a member of the family.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, member: &Member<'_>) -> Result<(), Error> {
    let ssm = h.ssm_heads()?;
    let interval = h.full_attention_interval.unwrap_or(ATTENTION_INTERVAL);
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let attends = (layer.il + 1).is_multiple_of(interval);
        let rope = rope::declare(b, &layer, Pairs::Split, h.rope.scaling, member.is_fixed)?;
        b.layer(attends.then(|| blocks::cells(&layer, Some(rope))));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let (mixed, output) = match attends {
            true => (attention(b, h, &layer, normed, rope)?, "attn_output"),
            false => (delta(b, h, &ssm, normed, member)?, "ssm_out"),
        };
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, output)?;
        let normed = b.norm(x, Norm::rms("post_attention_norm", h.norm_rms_eps))?;
        (member.feed_forward)(b, h, &layer, x, normed)?;
    }
    blocks::head(b, h, x)
}

/// Return attention up to, not including, its output projection: queries come with a gate for each
/// head.
fn attention(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    rope: RopeId,
) -> Result<Value, Error> {
    h.check_heads_alike(layer)?;
    let linears = [
        Linear::new("attn_q", 2 * layer.n_q()),
        Linear::new("attn_k", layer.n_k()),
        Linear::new("attn_v", layer.n_v()),
    ];
    let [both, k, v] = b.linears(x, linears)?;
    let half = |first| Columns { first, n: layer.d_k, group: 2 * layer.d_k };
    let (q, gate) = (b.columns("q", both, half(0)), b.columns("gate", both, half(layer.d_k)));
    b.norm_in_place(q, Norm::heads("attn_q_norm", h.norm_rms_eps, layer.d_k))?;
    b.norm_in_place(k, Norm::heads("attn_k_norm", h.norm_rms_eps, layer.d_k))?;
    b.rotate(q, rope, layer.n_head);
    b.rotate(k, rope, layer.n_head_kv);
    let y = b.attend(Qkv { q, k, v }, Scores::scaled(h.attention_scale(layer)));
    Ok(b.gate(Activation::Sigmoid, gate, y))
}

/// Return the gated delta rule up to, not including, its output projection.
fn delta(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    ssm: &Ssm,
    x: Value,
    member: &Member<'_>,
) -> Result<Value, Error> {
    let linears = [Linear::new("attn_qkv", ssm.n_channels()), Linear::new("attn_gate", ssm.d_inner)];
    let [qkv, z] = b.linears(x, linears)?;
    let Gates { beta, alpha } = (member.gates)(b, ssm, x)?;
    let qkv = b.conv(qkv, "ssm_conv1d", ssm.d_conv, true)?;
    let sizes = DeltaSizes {
        n_head: ssm.dt_rank,
        n_head_k: ssm.n_group,
        sharing: member.sharing,
        d_k: ssm.d_state,
        d_v: ssm.d_inner / ssm.dt_rank,
        eps: h.norm_rms_eps,
    };
    let y = b.delta(DeltaInputs { qkv, beta, alpha }, sizes)?;
    b.norm_in_place(y, Norm::heads("ssm_norm", h.norm_rms_eps, sizes.d_v))?;
    Ok(b.gate(Activation::Silu, z, y))
}
