//! Gemma 1 to 4.

use super::edits::add_one;
use super::standard::{self, need_numbers, sliding_layers};
use super::{At, Edit, Family, KNOWN_TOKENS, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, GATED, Names, PRE_NORMS, QK_NORM, SANDWICH_NORMS};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// Per-layer embeddings, experts and their norms, of Gemma 4.
const GEMMA4: Names = &[
    ("layer_scalar", "layer_output_scale"),
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    ("router.proj", "ffn_gate_inp"),
    ("experts.gate_up_proj", "ffn_gate_up_exps"),
    ("experts.down_proj", "ffn_down_exps"),
];

const GEMMA: Family = Family {
    architecture: "gemma",
    metadata: first,
    rename: |_, name| (name != "lm_head.weight").then_some(name),
    names: &[ATTENTION, PRE_NORMS, GATED],
    edits: &[("*_norm", Edit::Each(add_one))],
    vocabulary: &[Style::SentencePiece],
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &["GemmaForCausalLM"], after_vocabulary: turns, ..GEMMA },
    Family {
        classes: &["Gemma2ForCausalLM"],
        architecture: "gemma2",
        metadata: second,
        names: &[ATTENTION, SANDWICH_NORMS, GATED],
        after_vocabulary: no_prefix,
        ..GEMMA
    },
    Family {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        architecture: "gemma3",
        prepare: vocabulary_size,
        metadata: third,
        rename: |_, name| Some(name),
        names: &[ATTENTION, QK_NORM, SANDWICH_NORMS, GATED],
        counts_tokens: true,
        edits: &[("*_norm", Edit::Each(add_one)), ("token_embd", Edit::Each(known_tokens))],
        vocabulary: &[Style::SentencePiece, Style::Bpe],
        after_vocabulary: |config, meta| {
            let merges = meta.get("tokenizer.ggml.merges").is_some();
            if merges { Ok(()) } else { no_prefix(config, meta) }
        },
        ..GEMMA
    },
    Family {
        classes: &["Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"],
        architecture: "gemma4",
        counts_tokens: true,
        metadata: fourth,
        rename: rename_fourth,
        names: &[GEMMA4, ATTENTION, QK_NORM, SANDWICH_NORMS, GATED],
        edits: &[("token_embd", Edit::Each(known_tokens))],
        extra: proportional,
        vocabulary: &[Style::Gemma4],
        ..GEMMA
    },
];

/// Set the keys that all have.
fn first(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("block_count", config.n_layers()? as u32);
    need_numbers(
        config,
        meta,
        &[
            ("context_length", &["max_position_embeddings"]),
            ("embedding_length", &["hidden_size"]),
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count", &["num_attention_heads"]),
            ("attention.key_length", &["head_dim"]),
            ("attention.value_length", &["head_dim"]),
        ],
    )?;
    meta.set_own("attention.head_count_kv", config.n_heads_kv()? as u32);
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["rms_norm_eps"])?);
    Ok(())
}

/// Set the keys of Gemma 2.
fn second(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    first(config, meta)?;
    meta.set_own("attn_logit_softcapping", config.need_float(&["attn_logit_softcapping"])?);
    meta.set_own("final_logit_softcapping", config.need_float(&["final_logit_softcapping"])?);
    meta.set_own("attention.sliding_window", config.need(&["sliding_window"])?);
    Ok(())
}

/// Set the number of tokens of Gemma 3 where the file leaves it out.
fn vocabulary_size(config: &mut Config) -> Result<(), Error> {
    /// Rows of the embedding of the published models: the tokens of their files, and padding.
    const N_TOKENS: u32 = 262_208;
    if config.number(&["vocab_size"])?.is_none() {
        config.set("vocab_size", N_TOKENS);
    }
    Ok(())
}

/// Set the keys of Gemma 3, whose files leave much out.
fn third(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    let number = |key: &str, otherwise: u32| Ok::<_, Error>(config.number(&[key])?.unwrap_or(otherwise));
    meta.set_own("context_length", number("max_position_embeddings", 131_072)?);
    meta.set_own("attention.head_count", number("num_attention_heads", 8)?);
    meta.set_own("attention.head_count_kv", number("num_key_value_heads", 4)?);
    meta.set_own("attention.key_length", number("head_dim", 256)?);
    meta.set_own("attention.value_length", number("head_dim", 256)?);
    let epsilon = config.float(&["rms_norm_eps"])?.unwrap_or(1e-6);
    meta.set_own("attention.layer_norm_rms_epsilon", epsilon);
    meta.set_own("rope.freq_base", config.rope().float(&["rope_theta"])?.unwrap_or(1_000_000.0));
    if config.float(&["attn_logit_softcapping"])?.is_some() {
        return Err(config.wrong(&["attn_logit_softcapping"], "nothing: Gemma 3 has none"));
    }
    let cap = config.float(&["final_logit_softcapping"])?.filter(|cap| *cap != 0.0);
    meta.set_some("final_logit_softcapping", cap);
    if config.number(&["sliding_window_pattern"])? != Some(1) {
        meta.set_own("attention.sliding_window", config.need(&["sliding_window"])?);
    }
    Ok(())
}

/// Drop the rows of tokens that no file names.
fn known_tokens(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    match at.config.number(&[KNOWN_TOKENS])? {
        Some(n) if n as usize > 0 && (n as usize) < tensor.dim(0) => tensor.slice(0, 0, n as usize),
        _ => Ok(tensor),
    }
}

/// Name the tensors of Gemma 4 as tables have them.
fn rename_fourth(_: &Config, name: String) -> Option<String> {
    let name = name.replace("router.scale", "router.proj.scale");
    let name = name.replace("router.per_expert_scale", "experts.down_proj.scale");
    let has_ending = name.ends_with(".weight") || name.ends_with(".scale");
    let is_weight = name.ends_with("layer_scalar") || name.contains(".experts.") && !has_ending;
    Some(if is_weight { format!("{name}.weight") } else { name })
}

/// Return the number of dimensions of heads of full attention.
fn full_head_dim(config: &Config) -> Result<usize, Error> {
    config.head_dim_of(&["global_head_dim", "head_dim"])
}

/// Set the keys of Gemma 4, which differ by layer.
fn fourth(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    third(config, meta)?;
    let n_shared = config.need(&["num_kv_shared_layers"])?;
    meta.set_own("attention.shared_kv_layers", n_shared);
    let per_layer = config.number(&["hidden_size_per_layer_input"])?.unwrap_or(0);
    meta.set_own("embedding_length_per_layer_input", per_layer);
    let sliding = sliding_layers(config);
    meta.set_own("attention.sliding_window_pattern", sliding.clone());
    let (full, swa) = (full_head_dim(config)? as u32, config.need(&["head_dim"])?);
    for (key, dim) in [("key", full), ("value", full)] {
        meta.set_own(&format!("attention.{key}_length"), dim);
        meta.set_own(&format!("attention.{key}_length_swa"), swa);
    }
    let experts = config.number(&["expert_intermediate_size", "moe_intermediate_size"])?;
    meta.set_some("expert_feed_forward_length", experts);
    if config.flag("use_double_wide_mlp") == Some(true) {
        let n = config.need(&["intermediate_size"])?.cast_signed();
        let layers = config.n_layers()?;
        let first_shared = layers.saturating_sub(n_shared as usize);
        let lengths = (0..layers).map(|layer| if layer < first_shared { n } else { n.saturating_mul(2) });
        meta.set_own("feed_forward_length", lengths.collect::<Vec<_>>());
    }
    if let Some(n_full) = config.number(&["num_global_key_value_heads"])? {
        let n_swa = config.need(&["num_key_value_heads"])?;
        let heads = sliding.iter().map(|&is_swa| if is_swa { n_swa } else { n_full }.cast_signed());
        meta.set_own("attention.head_count_kv", heads.collect::<Vec<_>>());
    }
    let part = config.rope_outer().float(&["partial_rotary_factor"])?.unwrap_or(1.0);
    meta.set_own("rope.dimension_count", full);
    meta.set_own("rope.dimension_count_swa", (swa as f32 * part) as u32);
    Ok(())
}

/// Make the factors by which full attention rotates a part of its dimensions only.
fn proportional(config: &Config) -> Result<Vec<(&'static str, Tensor)>, Error> {
    /// Slows a rotation until nothing is left of it.
    const NEVER: f32 = 1e30;
    let rope = config.rope();
    if rope.text(&["rope_type"]) != Some("proportional") {
        return Err(rope.wrong(&["rope_type"], "\"proportional\""));
    }
    let dim = full_head_dim(config)?;
    let part = rope.need_float(&["partial_rotary_factor"])?.clamp(0.0, 1.0);
    let n_rotated = (dim as f32 * part / 2.0) as usize;
    let factors = (0..dim / 2).map(|i| if i < n_rotated { 1.0 } else { NEVER }).collect();
    Ok(vec![("rope_freqs", Tensor::of_values("rope_freqs", factors))])
}

/// Put no space before texts.
fn no_prefix(_: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set("tokenizer.ggml.add_space_prefix", false);
    Ok(())
}

/// Set the token that ends turns.
fn turns(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set("tokenizer.ggml.eot_token_id", 107u32);
    no_prefix(config, meta)
}
