//! Pieces that many architectures share.

use crate::{
    error::Error,
    graph::{Activation, Builder, ExpertParams, ExpertWeights, RopeId, Scores, Value},
    hparams::{Experts, Hparams},
};
use backstitch_kv::LayerSpec;

/// Self-attention up to, not including, the output projection. Biases are used where the file has them, so are norms
/// of each query and key head.
pub(super) fn attention(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    rope: impl Into<Option<RopeId>>,
) -> Result<Value, Error> {
    attention_with(b, h, x, rope, Scores { scale: h.attention_scale(), soft_cap: 0.0 })
}

/// As [`attention`], with scores of the architecture's own.
pub(super) fn attention_with(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    rope: impl Into<Option<RopeId>>,
    scores: Scores,
) -> Result<Value, Error> {
    let (n_q, n_k, n_v) = (h.n_head * h.d_k, h.n_head_kv * h.d_k, h.n_head_kv * h.d_v);
    let matrices = [
        b.linear("attn_q", n_q, h.n_embd)?,
        b.linear("attn_k", n_k, h.n_embd)?,
        b.linear("attn_v", n_v, h.n_embd)?,
    ];
    let [q, k, v] = b.linears(x, matrices, ["q", "k", "v"]);
    for (x, norm) in [(q, "attn_q_norm.weight"), (k, "attn_k_norm.weight")] {
        if b.has(norm) {
            b.group_norm(x, norm, h.d_k, h.d_k, h.norm_rms_eps)?;
        }
    }
    if let Some(rope) = rope.into() {
        b.rotate(q, rope, h.n_head);
        b.rotate(k, rope, h.n_head_kv);
    }
    Ok(b.attend(q, k, v, h.n_head, h.d_v, scores))
}

/// The feed-forward network `down(silu(gate(x)) * up(x))`, added to `residual`; a mixture of such networks where the
/// model has experts.
pub(super) fn feed_forward(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    residual: Value,
    x: Value,
) -> Result<(), Error> {
    if let Some(experts) = h.experts {
        return mixture(b, h, &experts, [residual, x], ExpertWeights::Renormalised, 1.0);
    }
    network(b, h, residual, x)
}

/// `silu(gate(x)) * up(x)`, by the matrices of these names, `n_ff` wide.
pub(super) fn gated(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    [gate, up]: [&str; 2],
    n_ff: usize,
) -> Result<Value, Error> {
    let matrices = [b.linear(gate, n_ff, h.n_embd)?, b.linear(up, n_ff, h.n_embd)?];
    let [gate, up] = b.linears(x, matrices, ["gate", "up"]);
    Ok(b.gate(Activation::Silu, gate, up))
}

/// The network `down(silu(gate(x)) * up(x))`, added to `residual`.
pub(super) fn network(b: &mut Builder<'_, '_>, h: &Hparams, residual: Value, x: Value) -> Result<(), Error> {
    let product = gated(b, h, x, ["ffn_gate", "ffn_up"], h.n_ff)?;
    let down = b.linear("ffn_down", h.n_embd, h.n_ff)?;
    b.add_linear(residual, product, down);
    Ok(())
}

/// A mixture of such networks over the second value, times `scale`, added to the first.
pub(super) fn mixture(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    experts: &Experts,
    [residual, x]: [Value; 2],
    weights: ExpertWeights,
    scale: f32,
) -> Result<(), Error> {
    let router = b.linear("ffn_gate_inp", experts.n_expert, h.n_embd)?;
    let params = ExpertParams {
        n_used: experts.n_used,
        n_ff: experts.n_ff,
        gate: b.experts("ffn_gate_exps.weight", experts.n_expert, experts.n_ff, h.n_embd)?,
        up: b.experts("ffn_up_exps.weight", experts.n_expert, experts.n_ff, h.n_embd)?,
        down: b.experts("ffn_down_exps.weight", experts.n_expert, h.n_embd, experts.n_ff)?,
        weights,
        scale,
    };
    let [router] = b.linears(x, [router], ["router"]);
    b.add_experts(residual, x, router, params);
    Ok(())
}

/// The pre-norm transformer that Llama made common: attention and feed-forward network, each behind an RMS norm.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, rope: RopeId) -> Result<(), Error> {
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        b.layer(LayerSpec { attention: h.attention_layer(b, rope), ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let mut attn = attention(b, h, normed, rope)?;
        if il + 1 == h.n_layer {
            (attn, x) = (b.outputs(attn), b.outputs(x));
        }
        let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
        feed_forward(b, h, x, normed)?;
    }
    head(b, h, x)
}

/// Final norm and scores of the vocabulary.
pub(super) fn head(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<(), Error> {
    head_behind(b, h, x, "output_norm.weight")
}

/// The same where the norm's weight has another name.
pub(super) fn head_behind(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, norm: &str) -> Result<(), Error> {
    b.head();
    let x = b.rms_norm("output_norm", x, norm, h.norm_rms_eps)?;
    b.logits(x, h.n_vocab)
}
