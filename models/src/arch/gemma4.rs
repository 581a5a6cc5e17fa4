//! Gemma 4 (Gemma Team, 2026, the Gemma 4 model cards).
//!
//! Layers with and without a window differ in the width of their heads. The last ones
//! (`attention.shared_kv_layers`) keep no keys and values, and attend to those of the last layer of
//! their kind that does. Values are normalised without weights, and scores have no factor. Small
//! members have embeddings for each layer (`per_layer_token_embd`): a row of them, with what the
//! token's own embedding makes of it, enters the stream behind each layer. Members with experts
//! have the network of all tokens beside them, and norms behind both.

use super::{
    blocks::{self, Ffn},
    decoder::{AttentionSpec, Decoder},
    gemma, rope,
};
use crate::{
    error::Error,
    graph::{
        Activation, Builder, Columns, EmbedTable, ExpertNetwork, Linear, Mixture, Norm, Qkv, Routing, RowOf,
        Scores, Value,
    },
    hparams::{Experts, Hparams, LayerHparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        pattern: Pattern::Every(6),
        rope: |b, h, layer, pairs| match layer.window {
            Some(_) => rope::unstretched(b, layer, pairs).map(Some),
            None => rope::of_layer(b, h, layer, pairs).map(Some),
        },
        shares: owner,
        scores: |h, _| Scores::scaled(h.f_attention_scale.unwrap_or(1.0)),
        attention,
        feed_forward: |b, h, layer, x, branch| {
            let Some(experts) = h.experts_of(layer).filter(|_| b.has("ffn_gate_inp.weight")) else {
                return blocks::gelu_gated_network(b, h, layer, x, branch);
            };
            let y = Ffn { activation: Activation::Gelu, ..Ffn::of_layer(layer) }.result(b, h, x)?;
            b.norm_in_place(y, Norm::rms("post_ffw_norm_1", h.norm_rms_eps))?;
            let mixed = mixed(b, h, &experts, branch.stream)?;
            b.norm_in_place(mixed, Norm::rms("post_ffw_norm_2", h.norm_rms_eps))?;
            b.add(y, mixed);
            branch.add(b, y)
        },
        ..gemma::normed(h)
    };
    let mut x = blocks::embed_scaled(b, h, decoder.embed_scale)?;
    let of_layers = h.n_embd_per_layer.map(|width| of_layers(b, h, x, width)).transpose()?;
    for layer in h.layers_by(decoder.pattern.clone()) {
        x = decoder.layer(b, h, &layer, x)?;
        if let (Some(all), Some(width)) = (of_layers, h.n_embd_per_layer) {
            let columns = Columns { first: layer.il * width, n: width, group: h.n_layer * width };
            let own = b.columns("own", all, columns);
            let [own] = b.last_outputs(layer.is_last, [own]);
            let gate = b.linear(x, Linear::new("inp_gate", width))?;
            let product = b.gate(Activation::Gelu, gate, own);
            let y = b.linear(product, Linear::new("proj", h.n_embd))?;
            b.norm_in_place(y, Norm::rms("post_norm", h.norm_rms_eps))?;
            b.add(x, y);
        }
        b.scale_by_weight(x, "layer_output_scale.weight")?;
        b.end_layer(x);
    }
    decoder.head(b, h, x)
}

/// Return the layer whose keys and values a layer attends to, if it keeps none: the last of its
/// kind that does.
fn owner(h: &Hparams, layer: &LayerHparams, pattern: &Pattern) -> Option<usize> {
    let alike = |other: &LayerHparams| other.window.is_some() == layer.window.is_some();
    let owners = h.layers_by(pattern.clone()).filter(|other| !other.shares_kv && alike(other));
    if layer.shares_kv { owners.last().map(|owner| owner.il) } else { None }
}

fn attention(b: &mut Builder<'_, '_>, spec: AttentionSpec<'_>, x: Value) -> Result<Value, Error> {
    let AttentionSpec { h, layer, choices, rope } = spec;
    let scores = (choices.scores)(h, layer);
    let q = b.linear(x, Linear::new("attn_q", layer.n_q()))?;
    b.norm_in_place(q, (choices.head_norm)(h, layer, "attn_q_norm"))?;
    if let Some(rope) = rope {
        b.rotate(q, rope, layer.n_head);
    }
    if (choices.shares)(h, layer, &choices.pattern).is_some() {
        return Ok(b.attend_shared(q, scores));
    }
    let k = b.linear(x, Linear::new("attn_k", layer.n_k()))?;
    // Without a matrix of their own, values are what keys are before their norm.
    let v = match b.has("attn_v.weight") {
        true => b.linear(x, Linear::new("attn_v", layer.n_v()))?,
        false => b.columns("v", k, Columns { first: 0, n: layer.n_k(), group: layer.n_k() }),
    };
    b.norm_in_place(k, (choices.head_norm)(h, layer, "attn_k_norm"))?;
    b.plain_norm_heads(v, h.norm_rms_eps, layer.d_v);
    if let Some(rope) = rope {
        b.rotate(k, rope, layer.n_head_kv);
    }
    Ok(b.attend(Qkv { q, k, v }, scores))
}

/// Return the embeddings that each layer has of its own, side by side: half a row of a table, half
/// a product of the token's embedding.
fn of_layers(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, width: usize) -> Result<Value, Error> {
    let all = h.n_layer * width;
    let scale = libm::sqrtf(width as f32);
    let (name, by) = ("per_layer_token_embd.weight", RowOf::TokenOrFirst);
    let rows = b.embed(EmbedTable { name, n_rows: h.n_vocab, width: all, by, scale })?;
    let product = b.linear(x, Linear::new("per_layer_model_proj", all))?;
    b.scale(product, 1.0 / libm::sqrtf(h.n_embd as f32));
    b.norm_in_place(product, Norm::heads("per_layer_proj_norm", h.norm_rms_eps, width))?;
    b.add(product, rows);
    b.scale(product, core::f32::consts::FRAC_1_SQRT_2);
    Ok(product)
}

/// Return the mixture of experts over the stream. Their router reads it behind a norm of its own.
fn mixed(b: &mut Builder<'_, '_>, h: &Hparams, experts: &Experts, stream: Value) -> Result<Value, Error> {
    let routed = b.norm(stream, Norm::rms("ffn_gate_inp.scale", h.norm_rms_eps))?;
    b.scale(routed, 1.0 / libm::sqrtf(h.n_embd as f32));
    let logits = Some(b.linear(routed, Linear::new("ffn_gate_inp", experts.n_expert))?);
    let network = ExpertNetwork::Gated(Activation::Gelu);
    let x = b.norm(stream, Norm::rms("pre_ffw_norm_2", h.norm_rms_eps))?;
    b.mixture(x, Mixture { network, logits, ..blocks::mixture(experts, Routing::RENORMALISED) })
}
