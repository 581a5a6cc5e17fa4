//! T5 (Raffel et al., 2020, arXiv 1910.10683): an encoder for the text that is given, a decoder for the one that is made. Scores are not
//! scaled and have terms by distance; the table of the first layer serves all. The decoder's cross attention has none.

use super::Arch;
use crate::{
    error::Error,
    graph::{Activation, Builder, Scores, Value, WeightId},
    hparams::Hparams,
};
use alloc::vec::Vec;
use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec};

pub(super) static ARCH: Arch = Arch { name: "t5", build };

const SCORES: Scores = Scores { scale: 1.0, soft_cap: 0.0 };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let n_bucket = h.n_bucket.ok_or_else(|| Error::MissingKey {
        key: alloc::format!("{}.attention.relative_buckets_count", h.architecture).into(),
    })?;
    let layer = AttentionLayer { n_head_kv: h.n_head_kv, d_k: h.d_k, d_v: h.d_v, window: None, rope: None };
    let texts = encoder(b, h, &layer, n_bucket)?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    b.stack("dec.");
    let mut terms = None;
    for (il, &text) in texts.iter().enumerate() {
        b.layer(LayerSpec { attention: AttentionSpec::Cached(layer.clone()), ..LayerSpec::default() });
        let attn = self_attention(b, h, x, &mut terms, (n_bucket, false))?;
        let output = b.linear("attn_o", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        let normed = b.rms_norm("cross_norm", x, "cross_attn_norm.weight", h.norm_rms_eps)?;
        let q = b.linear("cross_attn_q", h.n_head * h.d_k, h.n_embd)?;
        let [q] = b.linears(normed, [q], ["q"]);
        let mut attn = b.cross(text, q, h.n_head, h.d_v, SCORES);
        if il + 1 == texts.len() {
            (attn, x) = (b.outputs(attn), b.outputs(x));
        }
        let output = b.linear("cross_attn_o", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        feed_forward(b, h, x)?;
    }
    b.head();
    let x = b.rms_norm("output_norm", x, "output_norm.weight", h.norm_rms_eps)?;
    b.stack("");
    b.logits(x, h.n_vocab)
}

/// The encoder; returns where it stores keys and values of the text for each layer of the decoder.
fn encoder(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &AttentionLayer,
    n_bucket: usize,
) -> Result<Vec<usize>, Error> {
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    b.stack("enc.");
    let mut terms = None;
    for _ in 0..h.n_layer {
        let attention = AttentionSpec::Uncached { layer: layer.clone(), causal: false };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let attn = self_attention(b, h, x, &mut terms, (n_bucket, true))?;
        let output = b.linear("attn_o", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        feed_forward(b, h, x)?;
    }
    b.head();
    x = b.rms_norm("output_norm", x, "output_norm.weight", h.norm_rms_eps)?;
    b.stack("dec.");
    let mut texts = Vec::new();
    for il in 0..h.n_layer_decoder {
        b.block(il);
        let matrices = [
            b.linear("cross_attn_k", h.n_head_kv * h.d_k, h.n_embd)?,
            b.linear("cross_attn_v", h.n_head_kv * h.d_v, h.n_embd)?,
        ];
        let [k, v] = b.linears(x, matrices, ["k", "v"]);
        texts.push(b.text_layer(layer.clone()));
        b.store_text(texts[il], k, v);
    }
    b.stack("");
    x = b.outputs(x);
    b.embeddings(x);
    b.end_encoder();
    Ok(texts)
}

/// Self-attention behind its norm, up to the output projection. `terms` remembers the first layer's table; `buckets` tells how many
/// there are and whether some are for tokens ahead.
fn self_attention(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Value,
    terms: &mut Option<WeightId>,
    (n_bucket, both_ways): (usize, bool),
) -> Result<Value, Error> {
    let table = match *terms {
        Some(table) => table,
        None => *terms.insert(b.distances("attn_rel_b.weight", n_bucket, h.n_head, both_ways)?),
    };
    let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
    let matrices = [
        b.linear("attn_q", h.n_head * h.d_k, h.n_embd)?,
        b.linear("attn_k", h.n_head_kv * h.d_k, h.n_embd)?,
        b.linear("attn_v", h.n_head_kv * h.d_v, h.n_embd)?,
    ];
    let qkv = b.linears(normed, matrices, ["q", "k", "v"]);
    Ok(b.attend_by_distance(qkv, h.n_head, h.d_v, SCORES, table))
}

/// The feed-forward network behind its norm: gated by GELU where the file has a gate, else with ReLU.
fn feed_forward(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<(), Error> {
    let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
    let up = b.linear("ffn_up", h.n_ff, h.n_embd)?;
    let product = if b.has("ffn_gate.weight") {
        let gate = b.linear("ffn_gate", h.n_ff, h.n_embd)?;
        let [gate, up] = b.linears(normed, [gate, up], ["gate", "up"]);
        b.gate(Activation::Gelu, gate, up)
    } else {
        let [up] = b.linears(normed, [up], ["up"]);
        b.activate(Activation::Relu, up);
        up
    };
    let down = b.linear("ffn_down", h.n_embd, h.n_ff)?;
    b.add_linear(x, product, down);
    Ok(())
}
