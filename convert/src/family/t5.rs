//! T5: an encoder and a decoder, or the encoder alone.

use super::standard::{copy_numbers, need_numbers};
use super::{Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::Names;
use crate::plan::Tensors;
use crate::vocab::Style;

/// Both stacks. The decoder's second layer looks at the encoder.
const T5: Names = &[
    ("encoder.layer.0.SelfAttention.q", "enc.attn_q"),
    ("encoder.layer.0.SelfAttention.k", "enc.attn_k"),
    ("encoder.layer.0.SelfAttention.v", "enc.attn_v"),
    ("encoder.layer.0.SelfAttention.o", "enc.attn_o"),
    ("encoder.layer.0.SelfAttention.relative_attention_bias", "enc.attn_rel_b"),
    ("encoder.layer.0.layer_norm", "enc.attn_norm"),
    ("encoder.layer.1.DenseReluDense.wi_0", "enc.ffn_gate"),
    ("encoder.layer.1.DenseReluDense.wi_1", "enc.ffn_up"),
    ("encoder.layer.1.DenseReluDense.wi", "enc.ffn_up"),
    ("encoder.layer.1.DenseReluDense.wo", "enc.ffn_down"),
    ("encoder.layer.1.layer_norm", "enc.ffn_norm"),
    ("decoder.layer.0.SelfAttention.q", "dec.attn_q"),
    ("decoder.layer.0.SelfAttention.k", "dec.attn_k"),
    ("decoder.layer.0.SelfAttention.v", "dec.attn_v"),
    ("decoder.layer.0.SelfAttention.o", "dec.attn_o"),
    ("decoder.layer.0.SelfAttention.relative_attention_bias", "dec.attn_rel_b"),
    ("decoder.layer.0.layer_norm", "dec.attn_norm"),
    ("decoder.layer.1.EncDecAttention.q", "dec.cross_attn_q"),
    ("decoder.layer.1.EncDecAttention.k", "dec.cross_attn_k"),
    ("decoder.layer.1.EncDecAttention.v", "dec.cross_attn_v"),
    ("decoder.layer.1.EncDecAttention.o", "dec.cross_attn_o"),
    ("decoder.layer.1.EncDecAttention.relative_attention_bias", "dec.cross_attn_rel_b"),
    ("decoder.layer.1.layer_norm", "dec.cross_attn_norm"),
    ("decoder.layer.2.DenseReluDense.wi_0", "dec.ffn_gate"),
    ("decoder.layer.2.DenseReluDense.wi_1", "dec.ffn_up"),
    ("decoder.layer.2.DenseReluDense.wi", "dec.ffn_up"),
    ("decoder.layer.2.DenseReluDense.wo", "dec.ffn_down"),
    ("decoder.layer.2.layer_norm", "dec.ffn_norm"),
];

const BOTH: Family = Family {
    architecture: "t5",
    metadata: |config, meta| {
        encoder(config, meta)?;
        copy_numbers(config, meta, &[("decoder_block_count", &["num_decoder_layers"])])?;
        need_numbers(config, meta, &[("decoder_start_token_id", &["decoder_start_token_id"])])
    },
    merge: |_, tensors| {
        share_embedding(tensors);
        Ok(())
    },
    names: &[T5],
    vocabulary: &[Style::Unigram],
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "T5ForConditionalGeneration",
            "T5WithLMHeadModel",
            "MT5ForConditionalGeneration",
            "UMT5ForConditionalGeneration",
            "UMT5Model",
        ],
        ..BOTH
    },
    Family { classes: &["T5EncoderModel"], architecture: "t5encoder", metadata: encoder, ..BOTH },
];

/// Keep one of the embeddings, which are the same under several names.
fn share_embedding(tensors: &mut Tensors) {
    let names = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"];
    let mut found =
        names.into_iter().filter_map(|name| tensors.take(None, name, ".weight")).collect::<Vec<_>>();
    if !found.is_empty() {
        tensors.put(None, "shared", ".weight", found.swap_remove(0));
    }
}

/// Set the keys of the encoder, and those that both stacks share.
fn encoder(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("context_length", config.number(&["n_positions"])?.unwrap_or(512));
    meta.set_own("block_count", config.n_layers()? as u32);
    need_numbers(
        config,
        meta,
        &[
            ("embedding_length", &["d_model"]),
            ("feed_forward_length", &["d_ff"]),
            ("attention.head_count", &["num_heads"]),
            ("attention.key_length", &["d_kv"]),
            ("attention.value_length", &["d_kv"]),
            ("attention.relative_buckets_count", &["relative_attention_num_buckets"]),
        ],
    )?;
    let epsilon = config.need_float(&["layer_norm_epsilon"])?;
    meta.set_own("attention.layer_norm_epsilon", epsilon);
    meta.set_own("attention.layer_norm_rms_epsilon", epsilon);
    Ok(())
}
