//! T5 (Raffel et al., 2020, arXiv 1910.10683): an encoder for the text that is given, a decoder for
//! the text that is made; and encoders of its kind without a decoder.
//!
//! Scores are not scaled and have relative position biases by buckets of distance
//! (`attention.relative_buckets_count`); the table of a half's first layer serves all of its layers
//! that have none of their own, which those of UMT5 have (Chung et al., 2023, arXiv 2304.09151).
//! The decoder's cross attention has no biases. Tensors are named after `enc.` and `dec.`;
//! `decoder_block_count` and `decoder_start_token_id` belong to the decoder. Later versions have a
//! GELU gate in their networks, the first one has a plain ReLU.

use super::{blocks, decoder::Branch};
use crate::{
    error::Error,
    graph::{Activation, BucketTable, Builder, Linear, Norm, Scores, Value, WeightId},
    hparams::{Hparams, LayerHparams},
};
use alloc::vec::Vec;

const SCORES: Scores = Scores::scaled(1.0);

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let n_bucket = h.n_bucket.ok_or_else(|| h.missing("attention.relative_buckets_count"))?;
    let cross_layers = encoder(b, h, n_bucket)?;
    let mut x = blocks::embed(b, h)?;
    b.stack("dec.");
    let mut bias = SharedBias { n_bucket, both_ways: false, table: None };
    for (layer, cross) in h.decoder_layers().zip(cross_layers) {
        b.layer(Some(blocks::cells(&layer, None)));
        let attn = self_attention(b, h, &layer, x, &mut bias)?;
        b.add_linear(x, attn, "attn_o")?;
        let normed = b.norm(x, Norm::rms("cross_attn_norm", h.norm_rms_eps))?;
        let q = b.linear(normed, Linear::new("cross_attn_q", layer.n_q()))?;
        let attn = b.attend_over(cross, q, SCORES, None);
        let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
        x = residual;
        b.add_linear(x, attn, "cross_attn_o")?;
        feed_forward(b, h, &layer, x)?;
        b.end_layer(x);
    }
    b.head();
    let x = b.norm(x, Norm::rms("output_norm", h.norm_rms_eps))?;
    b.stack("");
    b.logits(x, h.n_vocab, None)
}

/// Describe an encoder alone.
pub(super) fn build_encoder(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let n_bucket = h.n_bucket.ok_or_else(|| h.missing("attention.relative_buckets_count"))?;
    let x = encoded(b, h, n_bucket)?;
    b.stack("");
    let x = b.outputs(x);
    b.embeddings(x);
    Ok(())
}

/// Describe the encoder; return the layer of the memory in which it stores keys and values for each
/// layer of the decoder.
fn encoder(b: &mut Builder<'_, '_>, h: &Hparams, n_bucket: usize) -> Result<Vec<usize>, Error> {
    let mut x = encoded(b, h, n_bucket)?;
    b.stack("dec.");
    let mut cross_layers = Vec::new();
    for layer in h.decoder_layers() {
        b.block(layer.il);
        let linears = [Linear::new("cross_attn_k", layer.n_k()), Linear::new("cross_attn_v", layer.n_v())];
        let [k, v] = b.linears(x, linears)?;
        let cross = b.cross_layer(blocks::cells(&layer, None));
        b.store(cross, k, v);
        cross_layers.push(cross);
    }
    b.stack("");
    x = b.outputs(x);
    b.embeddings(x);
    b.end_encoder();
    Ok(cross_layers)
}

/// Return what the encoder makes of a text.
fn encoded(b: &mut Builder<'_, '_>, h: &Hparams, n_bucket: usize) -> Result<Value, Error> {
    let x = blocks::embed(b, h)?;
    b.stack("enc.");
    let mut bias = SharedBias { n_bucket, both_ways: true, table: None };
    for layer in h.layers() {
        b.encoder_layer(blocks::cells(&layer, None));
        let attn = self_attention(b, h, &layer, x, &mut bias)?;
        b.add_linear(x, attn, "attn_o")?;
        feed_forward(b, h, &layer, x)?;
        b.end_layer(x);
    }
    b.head();
    b.norm(x, Norm::rms("output_norm", h.norm_rms_eps))
}

/// The relative position biases of one half of the model.
struct SharedBias {
    n_bucket: usize,
    /// True if tokens ahead have buckets of their own.
    both_ways: bool,
    /// The first layer's table, once that layer is described.
    table: Option<WeightId>,
}

impl SharedBias {
    fn table(&mut self, b: &mut Builder<'_, '_>, layer: &LayerHparams) -> Result<WeightId, Error> {
        const NAME: &str = "attn_rel_b.weight";
        let SharedBias { n_bucket, both_ways, table } = *self;
        match table {
            Some(table) if !b.has(NAME) => Ok(table),
            _ => {
                let table = BucketTable { name: NAME, n_bucket, n_head: layer.n_head, both_ways };
                let own = b.buckets(table)?;
                self.table.get_or_insert(own);
                Ok(own)
            }
        }
    }
}

/// Return self-attention behind its norm, up to the output projection.
fn self_attention(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    x: Value,
    bias: &mut SharedBias,
) -> Result<Value, Error> {
    let bias = bias.table(b, layer)?;
    let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
    let qkv = blocks::qkv(b, h, layer, normed)?;
    Ok(b.attend_with(qkv, SCORES, Some(bias)))
}

/// Add the feed-forward network behind its norm: gated by GELU where the file has a gate, else with
/// ReLU.
fn feed_forward(b: &mut Builder<'_, '_>, h: &Hparams, layer: &LayerHparams, x: Value) -> Result<(), Error> {
    let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
    let branch = Branch::to(x);
    match b.has("ffn_gate.weight") {
        true => blocks::gelu_gated_network(b, h, layer, normed, branch),
        false => blocks::plain_network(b, h, layer, normed, branch, Activation::Relu),
    }
}
