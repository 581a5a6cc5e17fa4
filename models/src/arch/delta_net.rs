//! What Qwen 3.5 and Qwen 3 Next share: the gated delta rule (Yang, Kautz and Hatamizadeh, 2024, arXiv 2412.06464) in most
//! layers, gated attention in every n-th.

use super::blocks;
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, DeltaParams, RopeId, Scores, Sharing, Value},
    hparams::{Hparams, Ssm},
};
use backstitch_kv::LayerSpec;

/// Where the members of the family differ.
pub(super) struct Member {
    /// How queries and keys turn.
    pub(super) rope: RopeId,
    /// Which heads have the same keys.
    pub(super) sharing: Sharing,
    /// How much is learned and how much is forgotten, before their functions, for each head.
    pub(super) gates: Gates,
    /// Adds the network over the second value to the first.
    pub(super) feed_forward: fn(&mut Builder<'_, '_>, &Hparams, Value, Value) -> Result<(), Error>,
}

pub(super) type Gates = fn(&mut Builder<'_, '_>, &Hparams, &Ssm, Value) -> Result<[Value; 2], Error>;

/// The whole graph of a member.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, member: &Member) -> Result<(), Error> {
    let ssm = h.ssm_heads()?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        let attends = (il + 1).is_multiple_of(h.full_attention_interval.unwrap_or(4));
        let mut layer = LayerSpec::default();
        if attends {
            layer.attention = h.attention_layer(b, member.rope);
        }
        b.layer(layer);
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let (mut mixed, output, width) = match attends {
            true => (attention(b, h, normed, member.rope)?, "attn_output", h.n_head * h.d_v),
            false => (delta(b, h, &ssm, normed, member)?, "ssm_out", ssm.d_inner),
        };
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        let output = b.linear(output, h.n_embd, width)?;
        b.add_linear(x, mixed, output);
        let normed = b.rms_norm("ffn_norm", x, "post_attention_norm.weight", h.norm_rms_eps)?;
        (member.feed_forward)(b, h, x, normed)?;
    }
    blocks::head(b, h, x)
}

/// Attention up to, not including, its output projection: queries come with a gate for each head.
fn attention(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, rope: RopeId) -> Result<Value, Error> {
    h.check_heads_alike()?;
    let matrices = [
        b.linear("attn_q", 2 * h.n_head * h.d_k, h.n_embd)?,
        b.linear("attn_k", h.n_head_kv * h.d_k, h.n_embd)?,
        b.linear("attn_v", h.n_head_kv * h.d_v, h.n_embd)?,
    ];
    let [both, k, v] = b.linears(x, matrices, ["q_gate", "k", "v"]);
    let half = |first| Columns { first, n: h.d_k, group: 2 * h.d_k };
    let (q, gate) = (b.columns("q", both, half(0)), b.columns("gate", both, half(h.d_k)));
    b.group_norm(q, "attn_q_norm.weight", h.d_k, h.d_k, h.norm_rms_eps)?;
    b.group_norm(k, "attn_k_norm.weight", h.d_k, h.d_k, h.norm_rms_eps)?;
    b.rotate(q, rope, h.n_head);
    b.rotate(k, rope, h.n_head_kv);
    let scores = Scores { scale: h.attention_scale(), soft_cap: 0.0 };
    let y = b.attend(q, k, v, h.n_head, h.d_v, scores);
    Ok(b.gate(Activation::Sigmoid, gate, y))
}

/// The gated delta rule up to, not including, its output projection.
fn delta(b: &mut Builder<'_, '_>, h: &Hparams, ssm: &Ssm, x: Value, member: &Member) -> Result<Value, Error> {
    let (n_head, n_head_k, d_k, d_v) = (ssm.dt_rank, ssm.n_group, ssm.d_state, ssm.d_inner / ssm.dt_rank);
    let n_qkv = ssm.n_channels();
    let matrices = [b.linear("attn_qkv", n_qkv, h.n_embd)?, b.linear("attn_gate", ssm.d_inner, h.n_embd)?];
    let [qkv, z] = b.linears(x, matrices, ["qkv", "z"]);
    let [beta, alpha] = (member.gates)(b, h, ssm, x)?;
    let qkv = b.conv(qkv, "ssm_conv1d", ssm.d_conv, true)?;
    let params = DeltaParams {
        n_head,
        n_head_k,
        sharing: member.sharing,
        d_k,
        d_v,
        dt_bias: b.vector("ssm_dt.bias", n_head)?,
        a: b.vector("ssm_a", n_head)?,
        eps: h.norm_rms_eps,
    };
    let y = b.delta([qkv, beta, alpha], params);
    b.group_norm(y, "ssm_norm.weight", d_v, d_v, h.norm_rms_eps)?;
    Ok(b.gate(Activation::Silu, z, y))
}
