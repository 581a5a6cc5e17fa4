//! Llama and the models that differ from it in little: Mistral, Mixtral, SmolLM3, MiniCPM, OLMo,
//! Llama 4.

use super::edits::{halves, key_pairs, query_pairs};
use super::standard::{self, copy_numbers, need_numbers, sliding_layers};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{
    ATTENTION, EXPERTS, GATED, LATENT_ATTENTION, MIXTRAL_EXPERTS, Names, PRE_NORMS, QK_NORM, SANDWICH_NORMS,
};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// Vocabularies of Llama's heirs, in the order in which llama.cpp's converter looks for them.
pub(super) const VOCABULARY: &[Style] = &[Style::SentencePiece, Style::ByteFallback, Style::Bpe];

/// Edits of the projections that rotate neighbours.
pub(super) const ROTATES_NEIGHBOURS: &[(&str, Edit)] =
    &[("attn_q", Edit::Each(query_pairs)), ("attn_k", Edit::Each(key_pairs))];

/// Llama itself, from which heirs start.
pub(super) const LLAMA: Family = Family {
    architecture: "llama",
    metadata,
    rename: |_, name| Some(name.replace("text_model.", "")),
    names: &[ATTENTION, PRE_NORMS, GATED, MIXTRAL_EXPERTS],
    edits: ROTATES_NEIGHBOURS,
    extra: llama3_factors,
    vocabulary: VOCABULARY,
    notes_prefix: true,
    after_vocabulary: by_size,
    ..PLAIN
};

/// Experts and the shared expert of Llama 4.
const LLAMA4_EXPERTS: Names = &[
    ("feed_forward.router", "ffn_gate_inp"),
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down"),
    ("feed_forward.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("feed_forward.experts.down_proj", "ffn_down_exps"),
    ("feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("feed_forward.shared_expert.up_proj", "ffn_up_shexp"),
    ("feed_forward.shared_expert.down_proj", "ffn_down_shexp"),
];

/// Norms behind attention and feed-forward network alone, as in OLMo 2.
const POST_NORMS: Names =
    &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "LlamaForCausalLM",
            "LLaMAForCausalLM",
            "MistralForCausalLM",
            "MixtralForCausalLM",
            "LlavaForConditionalGeneration",
            "VoxtralForConditionalGeneration",
            "IQuestCoderForCausalLM",
        ],
        ..LLAMA
    },
    Family { classes: &["LlamaModel"], rename: |_, name| Some(format!("model.{name}")), ..LLAMA },
    Family { classes: &["ArceeForCausalLM"], architecture: "arcee", ..LLAMA },
    Family { classes: &["SmolLM3ForCausalLM"], architecture: "smollm3", ..LLAMA },
    Family {
        classes: &["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"],
        architecture: "mistral3",
        metadata: mistral3,
        ..LLAMA
    },
    Family {
        classes: &["Llama4ForConditionalGeneration", "Llama4ForCausalLM"],
        architecture: "llama4",
        prepare: llama4_sizes,
        metadata: llama4,
        names: &[ATTENTION, PRE_NORMS, LLAMA4_EXPERTS],
        rename: |_, name| {
            let stacked = name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj");
            Some(if stacked { format!("{name}.weight") } else { name })
        },
        edits: &[
            ("ffn_gate_up_exps", Edit::Parts(transposed_gate_up)),
            ("ffn_down_exps", Edit::Each(super::edits::transpose)),
        ],
        extra: llama3_factors,
        ..PLAIN
    },
    Family {
        classes: &["MiniCPMForCausalLM"],
        architecture: "minicpm",
        metadata: minicpm,
        extra: |config| super::phi::factors(config, config.head_dim()?),
        vocabulary: &[Style::SentencePiece],
        names: LLAMA.names,
        edits: ROTATES_NEIGHBOURS,
        ..PLAIN
    },
    Family {
        classes: &["MiniCPM3ForCausalLM"],
        architecture: "minicpm3",
        metadata: minicpm3,
        names: &[LATENT_ATTENTION, ATTENTION, PRE_NORMS, GATED],
        extra: |config| super::phi::factors(config, config.size(&["qk_rope_head_dim"])?),
        vocabulary: &[Style::SentencePiece],
        ..PLAIN
    },
    Family {
        classes: &["OlmoForCausalLM", "OLMoForCausalLM"],
        architecture: "olmo",
        metadata: |config, meta| {
            standard::metadata(config, meta)?;
            meta.set_own("attention.layer_norm_epsilon", 1e-5);
            meta.set_some("attention.clamp_kqv", config.float(&["clip_qkv"])?);
            Ok(())
        },
        names: &[ATTENTION, GATED],
        edits: ROTATES_NEIGHBOURS,
        ..PLAIN
    },
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        architecture: "olmo2",
        metadata: olmo2,
        names: &[ATTENTION, QK_NORM, POST_NORMS, GATED],
        ..PLAIN
    },
    Family {
        classes: &["OlmoeForCausalLM"],
        architecture: "olmoe",
        metadata: |config, meta| {
            standard::metadata(config, meta)?;
            meta.set_own("attention.layer_norm_rms_epsilon", 1e-5);
            Ok(())
        },
        names: &[ATTENTION, QK_NORM, PRE_NORMS, EXPERTS],
        ..PLAIN
    },
    Family {
        classes: &["SeedOssForCausalLM"],
        architecture: "seed_oss",
        names: &[
            ATTENTION,
            &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm")],
            GATED,
        ],
        ..PLAIN
    },
    Family {
        classes: &["NemotronForCausalLM"],
        architecture: "nemotron",
        metadata: nemotron,
        names: &[ATTENTION, PRE_NORMS, GATED],
        edits: &[("*_norm", Edit::Each(norm_weights))],
        vocabulary: &[Style::SentencePiece],
        after_vocabulary: |_, meta| {
            meta.set("tokenizer.ggml.padding_token_id", 0u32);
            meta.set("tokenizer.ggml.unknown_token_id", 1u32);
            Ok(())
        },
        ..PLAIN
    },
    Family {
        classes: &["Exaone4ForCausalLM"],
        architecture: "exaone4",
        metadata: |config, meta| {
            standard::metadata(config, meta)?;
            meta.set_own("vocab_size", config.need(&["vocab_size"])?);
            if let Some(window) = config.number(&["sliding_window"])? {
                meta.set_own("attention.sliding_window", window);
                meta.set_own("attention.sliding_window_pattern", sliding_layers(config));
            }
            Ok(())
        },
        names: &[ATTENTION, QK_NORM, SANDWICH_NORMS, GATED],
        extra: llama3_factors,
        ..PLAIN
    },
];

/// Set the keys of Llama: the usual ones, the vocabulary's size and the rotated dimensions.
pub(super) fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    meta.set_own("vocab_size", config.need(&["vocab_size"])?);
    meta.set_own("rope.dimension_count", config.head_dim()? as u32);
    Ok(())
}

/// Set the keys of Ministral 3.
fn mistral3(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    if config.text(&["model_type"]) == Some("ministral3") {
        let rope = config.rope();
        meta.set_own("rope.scaling.yarn_log_multiplier", rope.need_float(&["mscale_all_dim"])?);
        meta.set_own("attention.temperature_scale", rope.need_float(&["llama_4_scaling_beta"])?);
    }
    Ok(())
}

/// Give the sizes of Llama 4's networks the names that others give them.
fn llama4_sizes(config: &mut Config) -> Result<(), Error> {
    let (experts, dense) = (config.need(&["intermediate_size"])?, config.need(&["intermediate_size_mlp"])?);
    config.set("intermediate_size_moe", experts);
    config.set("intermediate_size", dense);
    Ok(())
}

/// Set the keys of Llama 4.
fn llama4(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    need_numbers(
        config,
        meta,
        &[
            ("interleave_moe_layer_step", &["interleave_moe_layer_step"]),
            ("expert_feed_forward_length", &["intermediate_size_moe"]),
        ],
    )?;
    let kinds = config.texts("layer_types");
    if !kinds.is_empty() && kinds.iter().all(|kind| *kind == "full_attention") {
        meta.set_own("attention.sliding_window", 0u32);
    }
    Ok(())
}

/// Transpose stacked experts and split gates from projections up.
fn transposed_gate_up(_: At<'_>, tensor: Tensor) -> Result<Vec<(&'static str, Tensor)>, Error> {
    halves(tensor.expect_rank(3)?.transpose()?, 1, ["ffn_gate_exps", "ffn_up_exps"])
}

/// Set the keys of MiniCPM, whose scales depend on its size.
fn minicpm(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    meta.set_own("embedding_scale", config.need_float(&["scale_emb"])?);
    let depth = f64::from(config.need_float(&["scale_depth"])?);
    meta.set_own("residual_scale", (depth / (config.n_layers()? as f64).sqrt()) as f32);
    let base = config.size(&["dim_model_base"])?;
    meta.set_own("logit_scale", (config.width()? as f64 / base as f64) as f32);
    Ok(())
}

/// Set the keys of MiniCPM 3.
fn minicpm3(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("block_count", config.n_layers()? as u32);
    need_numbers(
        config,
        meta,
        &[
            ("context_length", &["max_position_embeddings"]),
            ("embedding_length", &["hidden_size"]),
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count", &["num_attention_heads"]),
            ("attention.head_count_kv", &["num_key_value_heads"]),
            ("vocab_size", &["vocab_size"]),
            ("attention.kv_lora_rank", &["kv_lora_rank"]),
            ("rope.dimension_count", &["qk_rope_head_dim"]),
        ],
    )?;
    copy_numbers(config, meta, &[("attention.q_lora_rank", &["q_lora_rank"])])?;
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["rms_norm_eps"])?);
    let key = config.size(&["qk_nope_head_dim"])? + config.size(&["qk_rope_head_dim"])?;
    meta.set_own("attention.key_length", key as u32);
    Ok(())
}

/// Set the keys of OLMo 2 and 3.
fn olmo2(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    if let Some(window) = config.number(&["sliding_window"])? {
        meta.set_own("attention.sliding_window", window);
        let mut pattern = sliding_layers(config);
        if pattern.is_empty() {
            pattern = (1..=config.n_layers()?).map(|layer| !layer.is_multiple_of(4)).collect();
        }
        meta.set_own("attention.sliding_window_pattern", pattern);
    }
    Ok(())
}

/// Set the keys of Nemotron.
fn nemotron(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    meta.set_own("vocab_size", config.need(&["vocab_size"])?);
    const EPSILON: &[&str] = &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"];
    meta.set_own("attention.layer_norm_epsilon", config.need_float(EPSILON)?);
    meta.set_own("rope.dimension_count", super::phi::rotated(config)?);
    let factor = config.float(&["factor"])?.or(config.rope().float(&["factor"])?);
    meta.set_own("rope.scaling.type", if factor.is_some() { "linear" } else { "none" });
    meta.set_some("rope.scaling.factor", factor);
    Ok(())
}

/// Add 1 to the weights of a norm, not to its bias.
fn norm_weights(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    Ok(if tensor.name().ends_with(".weight") { tensor.add(1.0) } else { tensor })
}

/// Set the token that ends turns of Code Llama, and leave the beginning of SmolLM's texts out.
fn by_size(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    match config.number(&["vocab_size"])? {
        Some(32016) => meta.set("tokenizer.ggml.eot_token_id", 32010u32),
        Some(49152) => meta.set("tokenizer.ggml.add_bos_token", false),
        _ => {}
    }
    Ok(())
}

/// Make the factors by which Llama 3.1 stretches slow rotations.
pub(super) fn llama3_factors(config: &Config) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let rope = config.rope();
    if !rope.text(&["rope_type"]).is_some_and(|kind| kind.eq_ignore_ascii_case("llama3")) {
        return Ok(Vec::new());
    }
    let base = rope.float(&["rope_theta"])?.unwrap_or(10000.0);
    let factor = rope.float(&["factor"])?.unwrap_or(8.0);
    let low = rope.float(&["low_freq_factor"])?.unwrap_or(1.0);
    let high = rope.float(&["high_freq_factor"])?.unwrap_or(4.0);
    let context = rope.number(&["original_max_position_embeddings"])?.unwrap_or(8192) as f32;
    let dim = config.head_dim()?;
    let stretched = |i: usize| {
        let frequency = 1.0 / base.powf(i as f32 / dim as f32);
        let wavelength = 2.0 * std::f32::consts::PI / frequency;
        if wavelength < context / high {
            1.0
        } else if wavelength > context / low {
            factor
        } else {
            let smooth = (context / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    let factors = (0..dim).step_by(2).map(stretched).collect();
    Ok(vec![("rope_freqs", Tensor::of_values("rope_freqs", factors))])
}
