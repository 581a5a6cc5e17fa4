//! Phi 2, 3 and 3.5 with experts.

use super::standard::need_numbers;
use super::{Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, GATED, MIXTRAL_EXPERTS, Names, PRE_NORMS};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// The block of Phi 2.
const PHI2: Names = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.dense", "attn_output"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];

/// Projections that stay joined.
const JOINED: Names = &[("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up")];

const PHI3: Family = Family {
    architecture: "phi3",
    metadata: third,
    names: &[JOINED, ATTENTION, PRE_NORMS, GATED],
    extra: |config| factors(config, rotated(config)? as usize),
    vocabulary: &[Style::SentencePieceAdded, Style::Bpe],
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["PhiForCausalLM"],
        architecture: "phi2",
        metadata: second,
        names: &[PHI2, ATTENTION],
        ..PLAIN
    },
    Family { classes: &["Phi3ForCausalLM", "Phi4ForCausalLMV"], ..PHI3 },
    Family {
        classes: &["PhiMoEForCausalLM"],
        architecture: "phimoe",
        metadata: |config, meta| {
            third(config, meta)?;
            need_numbers(
                config,
                meta,
                &[
                    ("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"]),
                    ("expert_count", &["num_local_experts", "num_experts"]),
                ],
            )
        },
        names: &[JOINED, ATTENTION, PRE_NORMS, GATED, MIXTRAL_EXPERTS],
        ..PHI3
    },
];

/// Return the number of dimensions of a head that are rotated.
pub(super) fn rotated(config: &Config) -> Result<u32, Error> {
    let part = config.rope_outer().float(&["partial_rotary_factor"])?.unwrap_or(1.0);
    Ok((f64::from(part) * config.width()? as f64) as u32 / config.n_heads()? as u32)
}

/// Set the keys of Phi 2.
fn second(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let width = config.width()? as u32;
    meta.set_own("context_length", config.need(&["n_positions", "max_position_embeddings"])?);
    meta.set_own("embedding_length", width);
    meta.set_own("feed_forward_length", width.saturating_mul(4));
    meta.set_own("block_count", config.n_layers()? as u32);
    meta.set_own("attention.head_count", config.n_heads()? as u32);
    meta.set_own("attention.head_count_kv", config.n_heads()? as u32);
    let epsilon = config.need_float(&["layer_norm_epsilon", "layer_norm_eps"])?;
    meta.set_own("attention.layer_norm_epsilon", epsilon);
    meta.set_own("rope.dimension_count", rotated(config)?);
    // Unless the tokenizer says something else.
    meta.set("tokenizer.ggml.add_bos_token", false);
    Ok(())
}

/// Set the keys of Phi 3.
fn third(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let rope = config.rope();
    let context = config.need(&["n_positions", "max_position_embeddings"])?;
    let original = config.rope_outer().need(&["original_max_position_embeddings"])?;
    meta.set_own("context_length", context);
    meta.set_own("rope.scaling.original_context_length", original);
    meta.set_own("embedding_length", config.width()? as u32);
    meta.set_own("feed_forward_length", config.need(&["intermediate_size"])?);
    meta.set_own("block_count", config.n_layers()? as u32);
    meta.set_own("attention.head_count", config.n_heads()? as u32);
    meta.set_own("attention.head_count_kv", config.n_heads_kv()? as u32);
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["rms_norm_eps"])?);
    meta.set_own("rope.dimension_count", rotated(config)?);
    meta.set_own("rope.freq_base", rope.need_float(&["rope_theta"])?);
    meta.set_own("attention.sliding_window", config.number(&["sliding_window"])?.unwrap_or(0));
    if rope.get(&["long_factor"]).is_some() {
        meta.set_own("rope.scaling.attn_factor", attention_factor(&rope, context, original)?);
    }
    Ok(())
}

/// Return the factor of attention for longer contexts.
fn attention_factor(rope: &Config, context: u32, original: u32) -> Result<f32, Error> {
    let (context, original) = (f64::from(context), f64::from(original));
    let scale = context / original;
    let factor = match rope.text(&["rope_type"]) {
        Some("su" | "longrope") => (1.0 + scale.ln() / original.ln()).sqrt(),
        Some("yarn") => 0.1 * scale.ln() + 1.0,
        _ => return Err(rope.wrong(&["rope_type"], "su, longrope or yarn")),
    };
    Ok(if scale > 1.0 { factor as f32 } else { 1.0 })
}

/// Make the factors of rotations for long and for short contexts, one for each pair of `n`
/// dimensions.
pub(super) fn factors(config: &Config, n: usize) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let rope = config.rope_outer();
    if rope.get(&["long_factor"]).is_none() && rope.get(&["short_factor"]).is_none() {
        return Ok(Vec::new());
    }
    let list = |key: &'static str, name: &'static str| {
        let values = rope.floats(key)?;
        if 2 * values.len() != n {
            return Err(rope.wrong(&[key], &format!("a list of {} numbers", n / 2)));
        }
        Ok((name, Tensor::of_values(name, values)))
    };
    Ok(vec![list("long_factor", "rope_factors_long")?, list("short_factor", "rope_factors_short")?])
}
