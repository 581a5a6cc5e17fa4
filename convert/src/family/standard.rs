//! The keys that most architectures have, under the names that most files give them.

use serde_json::Value;

use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;

/// Keys with a whole number, and the names that files give them.
const NUMBERS: &[(&str, &[&str])] = &[
    (
        "context_length",
        &[
            "max_position_embeddings",
            "n_ctx",
            "n_positions",
            "max_length",
            "max_sequence_length",
            "model_max_length",
        ],
    ),
    ("embedding_length", &["hidden_size", "n_embd", "dim"]),
    ("attention.head_count", &["num_attention_heads", "n_head", "n_heads"]),
    ("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"]),
    ("expert_used_count", &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"]),
    ("expert_group_count", &["n_group"]),
    ("expert_group_used_count", &["topk_group"]),
    ("attention.key_length", &["head_dim"]),
    ("attention.value_length", &["head_dim"]),
];

/// Keys with a number for all layers or a list of one for each, and the names that files give them.
const PER_LAYER: &[(&str, &[&str])] = &[
    (
        "feed_forward_length",
        &[
            "prefix_dense_intermediate_size",
            "dense_intermediate_size",
            "intermediate_size",
            "n_inner",
            "hidden_dim",
        ],
    ),
    ("attention.head_count_kv", &["num_key_value_heads", "n_kv_heads"]),
];

/// Keys with a fraction, and the names that files give them.
const FRACTIONS: &[(&str, &[&str])] = &[
    ("attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"]),
    ("attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]),
];

/// Set the keys that most architectures have.
pub(super) fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("block_count", config.n_layers()? as u32);
    for &(key, names) in NUMBERS {
        meta.set_some(key, config.number(names)?);
    }
    for &(key, names) in PER_LAYER {
        match config.get(names) {
            Some(Value::Array(_)) => meta.set_own(key, integers(config, names)?),
            _ => meta.set_some(key, config.number(names)?),
        }
    }
    for &(key, names) in FRACTIONS {
        meta.set_some(key, config.float(names)?);
    }
    if config.flag("is_causal") == Some(false) {
        meta.set_own("attention.causal", false);
    }
    gating(config, meta)?;
    rope(config, meta)
}

/// Return a list of integers.
pub(super) fn integers(config: &Config, names: &[&str]) -> Result<Vec<i32>, Error> {
    let list = config.get(names).and_then(Value::as_array);
    let integers =
        list.and_then(|list| list.iter().map(|x| x.as_i64().and_then(|x| i32::try_from(x).ok())).collect());
    integers.ok_or_else(|| config.wrong(names, "a list of integers"))
}

/// Set the function that turns the router's outputs into weights.
fn gating(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    const KEYS: &[&str] = &[
        "score_function",
        "scoring_func",
        "score_func",
        "moe_router_activation",
        "moe_router_activation_func",
        "expert_selection_fn",
    ];
    let number = match config.text(KEYS) {
        None => return Ok(()),
        Some("softmax") => SOFTMAX,
        Some("sigmoid") => SIGMOID,
        Some(_) => return Err(config.wrong(KEYS, "softmax or sigmoid")),
    };
    meta.set_own("expert_gating_func", number);
    Ok(())
}

/// Number of the gating function that is a softmax over all experts.
const SOFTMAX: u32 = 1;
/// Number of the gating function that looks at each expert alone.
pub(super) const SIGMOID: u32 = 2;

/// Set the keys of the rotary embedding.
fn rope(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let rope = config.rope();
    let factor = rope.float(&["factor"])?;
    match (rope.text(&["rope_type"]), factor) {
        (Some("linear"), Some(factor)) => {
            meta.set_own("rope.scaling.type", "linear");
            meta.set_own("rope.scaling.factor", factor);
        }
        (Some("yarn"), Some(factor)) => yarn(&rope, factor, meta)?,
        (Some("su" | "longrope"), _) => meta.set_own("rope.scaling.type", "longrope"),
        _ => {}
    }
    let outer = config.rope_outer();
    if outer.get(&["mrope_section"]).is_some() {
        let mut sections = integers(&outer, &["mrope_section"])?;
        sections.resize(4, 0);
        meta.set_own("rope.dimension_sections", sections);
    }
    meta.set_some("rope.freq_base", rope.float(&["rope_theta"])?);
    if let Some(sliding) = config.rope_sliding() {
        meta.set_some("rope.freq_base_swa", sliding.float(&["rope_theta"])?);
    }
    Ok(())
}

/// Set the keys of YaRN.
fn yarn(rope: &Config, factor: f32, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("rope.scaling.type", "yarn");
    meta.set_own("rope.scaling.factor", factor);
    meta.set_own("rope.scaling.original_context_length", rope.need(&["original_max_position_embeddings"])?);
    let fractions: &[(&str, &[&str])] = &[
        ("rope.scaling.yarn_ext_factor", &["extrapolation_factor"]),
        ("rope.scaling.yarn_attn_factor", &["attention_factor", "attn_factor"]),
        ("rope.scaling.yarn_beta_fast", &["beta_fast"]),
        ("rope.scaling.yarn_beta_slow", &["beta_slow"]),
    ];
    for &(key, names) in fractions {
        meta.set_some(key, rope.float(names)?);
    }
    Ok(())
}

/// Return true for each layer whose attention slides.
pub(super) fn sliding_layers(config: &Config) -> Vec<bool> {
    config.texts("layer_types").iter().map(|kind| *kind == "sliding_attention").collect()
}

/// Copy numbers of the file to keys, those that are there.
pub(super) fn copy_numbers(
    config: &Config,
    meta: &mut Metadata,
    keys: &[(&str, &[&str])],
) -> Result<(), Error> {
    for &(key, names) in keys {
        meta.set_some(key, config.number(names)?);
    }
    Ok(())
}

/// Copy numbers of the file to keys, all of which must be there.
pub(super) fn need_numbers(
    config: &Config,
    meta: &mut Metadata,
    keys: &[(&str, &[&str])],
) -> Result<(), Error> {
    for &(key, names) in keys {
        meta.set_own(key, config.need(names)?);
    }
    Ok(())
}

/// Copy fractions of the file to keys, those that are there.
pub(super) fn copy_fractions(
    config: &Config,
    meta: &mut Metadata,
    keys: &[(&str, &[&str])],
) -> Result<(), Error> {
    for &(key, names) in keys {
        meta.set_some(key, config.float(names)?);
    }
    Ok(())
}
