//! State spaces beside or between layers with attention: Jamba, Falcon H1, Granite 4, Nemotron H.

use super::edits::{neg_exp, squeeze};
use super::granite::{self, ALONE, EXPERTS, HYBRID, SHARED, has_experts};
use super::mamba::{self, ENDLESS, SECOND, mixer, pad_vocabulary};
use super::standard::need_numbers;
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, Names, PRE_NORMS, STATE_SPACE, layer_of};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// Norms and networks of Jamba; its experts are stacked under other names.
const JAMBA: Names = &[
    ("input_layernorm", "attn_norm"),
    ("pre_ff_layernorm", "ffn_norm"),
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down"),
    ("feed_forward.router", "ffn_gate_inp"),
    ("feed_forward.experts.gate_proj", "ffn_gate_exps"),
    ("feed_forward.experts.up_proj", "ffn_up_exps"),
    ("feed_forward.experts.down_proj", "ffn_down_exps"),
    ("ssm.dt_layernorm", "ssm_dt_norm"),
    ("ssm.b_layernorm", "ssm_b_norm"),
    ("ssm.c_layernorm", "ssm_c_norm"),
];

/// Mixers of Nemotron H, of all kinds under one name.
const NEMOTRON: Names = &[
    ("norm", "attn_norm"),
    ("ssm.q_proj", "attn_q"),
    ("ssm.k_proj", "attn_k"),
    ("ssm.v_proj", "attn_v"),
    ("ssm.o_proj", "attn_output"),
    ("ssm.up_proj", "ffn_up"),
    ("ssm.down_proj", "ffn_down"),
    ("ssm.gate", "ffn_gate_inp"),
    ("ssm.gate.e_score_correction", "exp_probs_b"),
    ("ssm.experts.up_proj", "ffn_up_exps"),
    ("ssm.experts.down_proj", "ffn_down_exps"),
    ("ssm.shared_experts.up_proj", "ffn_up_shexp"),
    ("ssm.shared_experts.down_proj", "ffn_down_shexp"),
    ("ssm.fc1_latent_proj", "ffn_latent_down"),
    ("ssm.fc2_latent_proj", "ffn_latent_up"),
];

/// Names of Falcon H1's network.
const FALCON: Names = &[
    ("input_layernorm", "attn_norm"),
    ("pre_ff_layernorm", "ffn_norm"),
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down"),
];

/// Edits of Granite 4: those of its state spaces, then those of its other parts.
const GRANITE: &[(&str, Edit)] = &[
    SECOND[0],
    SECOND[1],
    SECOND[2],
    SECOND[3],
    granite::EDITS[0],
    granite::EDITS[1],
    granite::EDITS[2],
    granite::EDITS[3],
    granite::EDITS[4],
];

const GRANITE_HYBRID: Family = Family {
    architecture: "granitehybrid",
    metadata: granite_hybrid,
    prepare: |config| pad_vocabulary(config, 8),
    rename: |_, name| Some(mixer(&name)),
    names: &[STATE_SPACE, ATTENTION, PRE_NORMS, EXPERTS, SHARED],
    edits: GRANITE,
    vocabulary: &[Style::SentencePiece, Style::Bpe],
    ..PLAIN
};

const NEMOTRON_H: Family = Family {
    architecture: "nemotron_h",
    metadata: |config, meta| nemotron(config, meta, "-"),
    prepare: |config| pad_vocabulary(config, 8),
    rename: |_, name| Some(mixer(&name)),
    names: &[NEMOTRON, STATE_SPACE],
    edits: GRANITE,
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["JambaForCausalLM"],
        architecture: "jamba",
        metadata: jamba,
        rename: rename_jamba,
        names: &[JAMBA, STATE_SPACE, ATTENTION],
        edits: &[("ssm_a", Edit::Each(neg_exp)), ("ssm_conv1d", Edit::Each(squeeze))],
        vocabulary: &[Style::SentencePiece, Style::ByteFallback],
        after_vocabulary: |_, meta| {
            if !matches!(meta.get("tokenizer.ggml.scores"), Some(crate::metadata::Meta::F32s(scores))
                if scores.iter().any(|score| *score > -1000.0))
            {
                meta.set("tokenizer.ggml.add_space_prefix", false);
            }
            Ok(())
        },
        ..PLAIN
    },
    Family {
        classes: &["FalconH1ForCausalLM"],
        architecture: "falcon-h1",
        metadata: falcon_h1,
        rename: |_, name| Some(mixer(&name)),
        names: &[FALCON, STATE_SPACE, ATTENTION],
        edits: FALCON_H1,
        ..PLAIN
    },
    Family {
        classes: HYBRID,
        when: |config| !state_layers(config).is_empty() && has_experts(config),
        ..GRANITE_HYBRID
    },
    Family {
        classes: HYBRID,
        when: |config| !state_layers(config).is_empty(),
        names: &[STATE_SPACE, ATTENTION, PRE_NORMS, ALONE],
        ..GRANITE_HYBRID
    },
    Family {
        classes: &["NemotronHForCausalLM"],
        architecture: "nemotron_h_moe",
        when: |config| config.get(&["num_experts_per_tok"]).is_some(),
        metadata: nemotron_experts,
        rename: |_, name| (!name.starts_with("mtp.")).then(|| mixer(&name)),
        ..NEMOTRON_H
    },
    Family {
        classes: &["NemotronHForCausalLM"],
        after_vocabulary: |_, meta| {
            meta.set("tokenizer.ggml.add_bos_token", true);
            Ok(())
        },
        ..NEMOTRON_H
    },
];

/// Set the keys of Jamba.
fn jamba(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    const WIDTH: &[&str] = &["hidden_size", "mamba_d_model"];
    let width = config.need(WIDTH)?;
    need_numbers(
        config,
        meta,
        &[
            ("context_length", &["max_position_embeddings", "n_ctx"]),
            ("embedding_length", WIDTH),
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count", &["num_attention_heads"]),
            ("expert_count", &["num_local_experts", "num_experts"]),
            ("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"]),
        ],
    )?;
    let n_layers = config.n_layers()?;
    meta.set_own("block_count", n_layers as u32);
    let n_kv = config.need(&["num_key_value_heads"])?.cast_signed();
    let attends = |layer| periodic(config, layer, ["attn_layer_offset", "attn_layer_period"]);
    let heads: Result<Vec<i32>, Error> =
        (0..n_layers).map(|layer| Ok(if attends(layer)? { n_kv } else { 0 })).collect();
    meta.set_own("attention.head_count_kv", heads?);
    meta.set_own("ssm.conv_kernel", config.number(&["mamba_d_conv"])?.unwrap_or(4));
    meta.set_own("ssm.inner_size", config.need(&["mamba_expand"])?.saturating_mul(width));
    meta.set_own("ssm.state_size", config.number(&["mamba_d_state"])?.unwrap_or(16));
    let rank = config.number(&["mamba_dt_rank"])?.unwrap_or(width.div_ceil(16));
    meta.set_own("ssm.time_step_rank", rank);
    let epsilon = config.float(&["layer_norm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-6);
    meta.set_own("attention.layer_norm_rms_epsilon", epsilon);
    Ok(())
}

/// Return true for layers that recur with a period, from an offset on.
fn periodic(config: &Config, layer: usize, [offset, period]: [&str; 2]) -> Result<bool, Error> {
    let (offset, period) = (config.need(&[offset])? as usize, config.size(&[period])?);
    Ok(layer.checked_sub(offset).is_some_and(|n| n.is_multiple_of(period)))
}

/// Name Jamba's tensors; a lone expert is a plain network.
fn rename_jamba(config: &Config, name: String) -> Option<String> {
    let name = mixer(&name.replace(".moe.", ".feed_forward."));
    let is_sparse = |layer| periodic(config, layer, ["expert_layer_offset", "expert_layer_period"]);
    let sparse = layer_of(&name).is_none_or(|layer| is_sparse(layer).unwrap_or(true));
    Some(if sparse { name } else { name.replace(".experts.0.", ".") })
}

/// Edits of Falcon H1, whose multipliers are folded into its weights.
const FALCON_H1: &[(&str, Edit)] = &[
    SECOND[0],
    SECOND[1],
    SECOND[2],
    SECOND[3],
    ("ffn_norm", Edit::Bare(|_, x| Ok(x))),
    ("ffn_down", Edit::Each(|at, x| Ok(x.multiply(nth(at, "mlp_multipliers", 1)?)))),
    ("ffn_gate", Edit::Each(|at, x| Ok(x.multiply(nth(at, "mlp_multipliers", 0)?)))),
    ("attn_q", Edit::Each(|at, x| Ok(x.multiply(one(at, "attention_in_multiplier")?)))),
    ("attn_k", Edit::Each(falcon_keys)),
    ("attn_v", Edit::Each(|at, x| Ok(x.multiply(one(at, "attention_in_multiplier")?)))),
    ("attn_output", Edit::Each(|at, x| Ok(x.multiply(one(at, "attention_out_multiplier")?)))),
    ("ssm_out", Edit::Each(|at, x| Ok(x.multiply(one(at, "ssm_out_multiplier")?)))),
    ("ssm_in", Edit::Each(falcon_in)),
    ("output", Edit::Each(|at, x| Ok(x.multiply(one(at, "lm_head_multiplier")?)))),
    ("token_embd", Edit::Each(|at, x| Ok(x.multiply(one(at, "embedding_multiplier")?)))),
];

/// Return a multiplier.
fn one(at: At<'_>, key: &str) -> Result<f32, Error> {
    at.config.need_float(&[key])
}

/// Return a multiplier of a list.
fn nth(at: At<'_>, key: &str, i: usize) -> Result<f32, Error> {
    let list = at.config.floats(key)?;
    list.get(i).copied().ok_or_else(|| at.config.wrong(&[key], &format!("at least {} numbers", i + 1)))
}

/// Fold two multipliers into the projection of keys, in the order in which rounding sees them.
fn falcon_keys(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let keys = tensor.multiply(one(at, "key_multiplier")?);
    Ok(keys.multiply(one(at, "attention_in_multiplier")?))
}

/// Fold the multipliers of the parts of a state space's input into its projection.
fn falcon_in(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let inner = at.config.size(&["mamba_d_ssm"])?;
    let states = at.config.size(&["mamba_n_groups"])? * at.config.size(&["mamba_d_state"])?;
    let steps = tensor.dim(0).saturating_sub(2 * inner + 2 * states);
    let mut runs = Vec::new();
    for (i, len) in [inner, inner, states, states, steps].into_iter().enumerate() {
        runs.push((len, nth(at, "ssm_multipliers", i)?));
    }
    Ok(tensor.multiply(one(at, "ssm_in_multiplier")?).multiply_rows(runs))
}

/// Set the keys of Falcon H1.
fn falcon_h1(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    mamba::second(config, meta)?;
    meta.set_own("context_length", config.number(&["max_position_embeddings"])?.unwrap_or(0));
    need_numbers(
        config,
        meta,
        &[
            ("vocab_size", &["vocab_size"]),
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count", &["num_attention_heads"]),
            ("attention.head_count_kv", &["num_key_value_heads"]),
            ("attention.key_length", &["head_dim"]),
            ("attention.value_length", &["head_dim"]),
        ],
    )?;
    meta.set_own("rope.freq_base", config.rope().need_float(&["rope_theta"])?);
    Ok(())
}

/// Return the layers with attention.
fn attention_layers(config: &Config) -> Vec<usize> {
    let n_layers = config.n_layers().unwrap_or(0);
    let kinds = config.texts("layer_types");
    if !kinds.is_empty() {
        return kinds.iter().enumerate().filter(|kind| *kind.1 == "attention").map(|kind| kind.0).collect();
    }
    if let Ok(layers) = super::standard::integers(config, &["attn_layer_indices"]) {
        return layers.into_iter().filter_map(|layer| usize::try_from(layer).ok()).collect();
    }
    let attends = |layer: &usize| {
        let number = |key| config.number(&[key]).ok().flatten();
        let period = number("attn_layer_period").filter(|period| *period > 0);
        period.is_some_and(|period| *layer as u32 % period == number("attn_layer_offset").unwrap_or(0))
    };
    (0..n_layers).filter(attends).collect()
}

/// Return the layers with state spaces.
pub(super) fn state_layers(config: &Config) -> Vec<usize> {
    let attention = attention_layers(config);
    (0..config.n_layers().unwrap_or(0)).filter(|layer| !attention.contains(layer)).collect()
}

/// Set the keys of state spaces between layers with attention.
fn states(config: &Config, meta: &mut Metadata, inner: u32) -> Result<(), Error> {
    need_numbers(
        config,
        meta,
        &[
            ("ssm.conv_kernel", &["conv_kernel", "d_conv", "mamba_conv_kernel", "mamba_d_conv"]),
            (
                "ssm.state_size",
                &[
                    "state_size",
                    "d_state",
                    "state_dim",
                    "ssm_state_size",
                    "mamba_state_size",
                    "mamba_d_state",
                ],
            ),
            ("ssm.group_count", &["n_groups", "num_groups", "mamba_n_groups", "mamba_num_groups"]),
            ("ssm.time_step_rank", &["n_heads", "num_heads", "mamba_n_heads", "mamba_num_heads"]),
        ],
    )?;
    meta.set_own("ssm.inner_size", inner);
    Ok(())
}

/// Set the keys of Granite 4 and Bamba.
fn granite_hybrid(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    granite::experts(config, meta)?;
    let inner = config.need(&["expand", "mamba_expand"])?.saturating_mul(config.width()? as u32);
    states(config, meta, inner)?;
    let attention = attention_layers(config);
    let n_kv = config.need(&["num_key_value_heads"])?.cast_signed();
    let heads = (0..config.n_layers()?).map(|layer| if attention.contains(&layer) { n_kv } else { 0 });
    meta.set_own("attention.head_count_kv", heads.collect::<Vec<_>>());
    let rotated = config.number(&["attn_rotary_emb"])?.filter(|n| *n > 0);
    meta.set_some("rope.dimension_count", rotated);
    let rotates = config.class()? == "BambaForCausalLM";
    meta.set_own("rope.scaling.finetuned", rotates);
    if !rotates {
        meta.set_own("context_length", ENDLESS);
    }
    Ok(())
}

/// Return for each layer of Nemotron H true if its kind is the one of that letter or word.
fn layers_of(config: &Config, letter: &str, word: &str) -> Result<Vec<bool>, Error> {
    const KEYS: &[&str] = &["hybrid_override_pattern", "layers_block_type"];
    let is: Vec<bool> = match config.text(KEYS) {
        Some(pattern) => pattern.chars().map(|c| c.to_string() == letter).collect(),
        None => config.texts("layers_block_type").iter().map(|kind| *kind == word).collect(),
    };
    if is.len() == config.n_layers()? { Ok(is) } else { Err(config.wrong(KEYS, "a kind for each layer")) }
}

/// Set the keys of Nemotron H. `letter` marks layers with networks.
fn nemotron(config: &Config, meta: &mut Metadata, letter: &str) -> Result<(), Error> {
    granite::experts(config, meta)?;
    let heads = config.need(&["mamba_num_heads", "num_heads"])?;
    let inner = heads.saturating_mul(config.need(&["mamba_head_dim", "hidden_size"])?);
    states(config, meta, inner)?;
    let head = config.need(&["head_dim", "attention_head_dim"])?;
    meta.set_own("attention.key_length", head);
    meta.set_own("attention.value_length", head);
    let per_layer = |is: Vec<bool>, n: u32| -> Vec<i32> {
        is.into_iter().map(|is| if is { n.cast_signed() } else { 0 }).collect()
    };
    let n_kv = config.need(&["num_key_value_heads"])?;
    meta.set_own("attention.head_count_kv", per_layer(layers_of(config, "*", "attention")?, n_kv));
    let width: &[&str] = match letter {
        "E" => &["moe_intermediate_size"],
        _ => &["intermediate_size", "n_inner", "hidden_dim"],
    };
    let networks = per_layer(layers_of(config, letter, "moe")?, config.need(width)?);
    meta.set_own("feed_forward_length", networks);
    meta.set_own("rope.scaling.finetuned", false);
    meta.set_own("context_length", ENDLESS);
    Ok(())
}

/// Set the keys of Nemotron H with experts.
fn nemotron_experts(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    nemotron(config, meta, "E")?;
    need_numbers(
        config,
        meta,
        &[
            ("expert_used_count", &["num_experts_per_tok"]),
            ("expert_feed_forward_length", &["moe_intermediate_size"]),
            ("expert_shared_feed_forward_length", &["moe_shared_expert_intermediate_size"]),
            ("expert_count", &["n_routed_experts"]),
            ("expert_shared_count", &["n_shared_experts"]),
            ("expert_group_count", &["n_group"]),
        ],
    )?;
    meta.set_own("expert_weights_norm", config.flag("norm_topk_prob").unwrap_or(false));
    meta.set_own("expert_weights_scale", config.need_float(&["routed_scaling_factor"])?);
    meta.set_some("moe_latent_size", config.number(&["moe_latent_size"])?);
    Ok(())
}
