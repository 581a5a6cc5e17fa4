//! Blocks that many architectures share: embeddings, attention, feed-forward networks, the head.
//!
//! A block stops before its output projection where architectures differ in what follows: some add
//! it to the residual stream at once, some normalise or scale it first, and in the last layer
//! [`Builder::last_outputs`] stands before it.

use super::rope;
use crate::{
    error::Error,
    graph::{
        Activation, Builder, Cells, EmbedTable, ExpertSizes, ExpertWeights, Linear, Mixture, Norm, Qkv,
        RopeId, RowOf, Scores, Value,
    },
    hparams::{Experts, Hparams, LayerHparams},
};
use alloc::format;
use backstitch_core::rope::Pairs;
use backstitch_kv::Window;

/// Return the embeddings of the tokens.
pub(super) fn embed(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<Value, Error> {
    embed_scaled(b, h, 1.0)
}

/// Return the embeddings of the tokens, times `scale`.
pub(super) fn embed_scaled(b: &mut Builder<'_, '_>, h: &Hparams, scale: f32) -> Result<Value, Error> {
    let (name, by) = ("token_embd.weight", RowOf::Token);
    b.embed(EmbedTable { name, n_rows: h.n_vocab, width: h.n_embd, by, scale })
}

/// Return the shape of the keys and values of a layer, rotated by `rope`.
pub(super) fn cells(layer: &LayerHparams, rope: Option<RopeId>) -> Cells {
    let LayerHparams { n_head_kv, d_k, d_v, .. } = *layer;
    Cells { n_head_kv, d_k, d_v, window: layer.window.map(Window::Sliding), rope }
}

/// Return queries, keys and values: products with `attn_qkv` where the file has them in one tensor,
/// else with `attn_q`, `attn_k` and `attn_v`. Biases are used where the file has them.
pub(super) fn qkv(b: &mut Builder<'_, '_>, layer: &LayerHparams, x: Value) -> Result<Qkv, Error> {
    let (n_q, n_k, n_v) = (layer.n_q(), layer.n_k(), layer.n_v());
    let linears = match b.has("attn_qkv.weight") {
        true => Linear::fused("attn_qkv", [("q", n_q), ("k", n_k), ("v", n_v)]),
        false => [Linear::new("attn_q", n_q), Linear::new("attn_k", n_k), Linear::new("attn_v", n_v)],
    };
    let [q, k, v] = b.linears(x, linears)?;
    Ok(Qkv { q, k, v })
}

/// Return self-attention up to, not including, the output projection. Norms of each query and key
/// head are used where the file has them.
pub(super) fn attention(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    rope: Option<RopeId>,
) -> Result<Value, Error> {
    let scores = Scores::scaled(h.attention_scale(layer));
    attention_scored(b, h, layer, x, rope, scores)
}

/// Return self-attention with scores of the architecture's own, and else as [`attention`] does.
pub(super) fn attention_scored(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    rope: Option<RopeId>,
    scores: Scores,
) -> Result<Value, Error> {
    let qkv = qkv(b, layer, x)?;
    b.norm_if_there(qkv.q, Norm::heads("attn_q_norm", h.norm_rms_eps, layer.d_k))?;
    b.norm_if_there(qkv.k, Norm::heads("attn_k_norm", h.norm_rms_eps, layer.d_k))?;
    if let Some(rope) = rope {
        b.rotate(qkv.q, rope, layer.n_head);
        b.rotate(qkv.k, rope, layer.n_head_kv);
    }
    Ok(b.attend(qkv, scores))
}

/// The tensors of a feed-forward network with a gate.
#[derive(Clone, Copy)]
pub(super) struct Ffn {
    /// Name of the gate matrix. Files that have both matrices in one tensor lack it; the tensor of
    /// the up matrix has the gate's rows first then.
    pub(super) gate: &'static str,
    /// Name of the up matrix.
    pub(super) up: &'static str,
    /// Name of the down matrix.
    pub(super) down: &'static str,
    /// Rows of the gate and up matrices.
    pub(super) n_ff: usize,
    /// The function of the gate.
    pub(super) activation: Activation,
}

impl Ffn {
    /// The network of a layer, with the usual names and SiLU.
    pub(super) const fn of_layer(layer: &LayerHparams) -> Self {
        let (gate, up, down) = ("ffn_gate", "ffn_up", "ffn_down");
        Ffn { gate, up, down, n_ff: layer.n_ff, activation: Activation::Silu }
    }

    /// The network that all tokens go through beside a mixture of experts.
    pub(super) const fn shared(n_ff: usize) -> Self {
        let (gate, up, down) = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp");
        Ffn { gate, up, down, n_ff, activation: Activation::Silu }
    }
}

/// Return `activation(gate(x)) * up(x)`.
pub(super) fn gated(b: &mut Builder<'_, '_>, ffn: Ffn, x: Value) -> Result<Value, Error> {
    let is_fused = !b.has(&format!("{}.weight", ffn.gate));
    let linears = match is_fused {
        true => Linear::fused(ffn.up, [("gate", ffn.n_ff), ("up", ffn.n_ff)]),
        false => [Linear::new(ffn.gate, ffn.n_ff), Linear::new(ffn.up, ffn.n_ff)],
    };
    let [gate, up] = b.linears(x, linears)?;
    Ok(b.gate(ffn.activation, gate, up))
}

/// Return `down(activation(gate(x)) * up(x))`.
pub(super) fn network(b: &mut Builder<'_, '_>, h: &Hparams, ffn: Ffn, x: Value) -> Result<Value, Error> {
    let product = gated(b, ffn, x)?;
    b.linear(product, Linear::new(ffn.down, h.n_embd))
}

/// Add `down(activation(gate(x)) * up(x))` to `residual`.
pub(super) fn add_network(b: &mut Builder<'_, '_>, ffn: Ffn, residual: Value, x: Value) -> Result<(), Error> {
    let product = gated(b, ffn, x)?;
    b.add_linear(residual, product, ffn.down)
}

/// Return the mixture of a layer's experts, with the usual names.
pub(super) fn mixture(experts: &Experts, weights: ExpertWeights, scale: f32) -> Mixture {
    let Experts { n_expert, n_used, n_ff, .. } = *experts;
    Mixture::new(n_expert, ExpertSizes { n_used, n_ff, weights, scale })
}

/// Add the layer's feed-forward network to `residual`: a mixture of experts where the model has
/// them.
pub(super) fn add_feed_forward(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    residual: Value,
    x: Value,
) -> Result<(), Error> {
    match h.experts {
        Some(experts) => b.add_mixture(residual, x, mixture(&experts, ExpertWeights::Renormalised, 1.0)),
        None => add_network(b, Ffn::of_layer(layer), residual, x),
    }
}

/// Describe the pre-norm transformer that Llama made common: attention and feed-forward network,
/// each behind an RMS norm.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, pairs: Pairs) -> Result<(), Error> {
    let mut x = embed(b, h)?;
    for layer in h.layers() {
        let rope = Some(rope::of_layer(b, h, &layer, pairs)?);
        b.layer(Some(cells(&layer, rope)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let attn = attention(b, h, &layer, normed, rope)?;
        let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
        x = residual;
        b.add_linear(x, attn, "attn_output")?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        add_feed_forward(b, h, &layer, x, normed)?;
    }
    head(b, h, x)
}

/// Describe the final norm and the scores of the vocabulary.
pub(super) fn head(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<(), Error> {
    b.head();
    let x = b.norm(x, Norm::rms("output_norm", h.norm_rms_eps))?;
    b.logits(x, h.n_vocab, None)
}
