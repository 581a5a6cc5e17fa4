//! Models from before Llama: GPT-2, Bloom, MPT, Falcon, GPT-NeoX, and StableLM and StarCoder 2.

use super::edits::{transpose, ungroup_heads};
use super::standard::need_numbers;
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, FUSED, GATED, GPT2, Names, PRE_NORMS, QK_NORM};
use crate::tensor::Tensor;

/// The block of MPT.
const MPT: Names = &[
    ("norm_1", "attn_norm"),
    ("norm_2", "ffn_norm"),
    ("attn.Wqkv", "attn_qkv"),
    ("attn.out_proj", "attn_output"),
    ("attn.q_ln", "attn_q_norm"),
    ("attn.k_ln", "attn_k_norm"),
    ("ffn.up_proj", "ffn_up"),
    ("ffn.down_proj", "ffn_down"),
];

/// Norms of larger Falcons.
const FALCON: Names = &[("ln_mlp", "attn_norm"), ("ln_attn", "attn_norm_2")];

/// The feed-forward network of StarCoder 2.
const STARCODER2: Names = &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["GPT2LMHeadModel"],
        architecture: "gpt2",
        metadata: gpt2,
        // Masks are no weights.
        rename: |_, name| {
            let is_mask = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
            (!is_mask).then_some(name)
        },
        names: &[GPT2],
        edits: &[
            ("attn_qkv", Edit::Each(transpose)),
            ("attn_output", Edit::Each(transpose)),
            ("ffn_up", Edit::Each(transpose)),
            ("ffn_down", Edit::Each(transpose)),
        ],
        ..PLAIN
    },
    Family {
        classes: &["GPTBigCodeForCausalLM"],
        architecture: "starcoder",
        metadata: |config, meta| {
            gpt2(config, meta)?;
            meta.set_own("attention.head_count_kv", 1u32);
            Ok(())
        },
        names: &[GPT2],
        ..PLAIN
    },
    Family {
        classes: &["BloomForCausalLM", "BloomModel"],
        architecture: "bloom",
        metadata: bloom,
        rename: |_, name| Some(name.replace("transformer.", "")),
        names: &[FUSED],
        edits: &[("attn_qkv", Edit::Each(ungroup_heads))],
        ..PLAIN
    },
    Family {
        classes: &["GPTNeoXForCausalLM"],
        architecture: "gptneox",
        metadata: gptneox,
        names: &[FUSED],
        edits: &[("attn_qkv", Edit::Each(ungroup_heads))],
        ..PLAIN
    },
    Family { classes: &["MPTForCausalLM"], architecture: "mpt", metadata: mpt, names: &[MPT], ..PLAIN },
    Family {
        classes: &["FalconForCausalLM", "RWForCausalLM"],
        architecture: "falcon",
        metadata: falcon,
        names: &[FALCON, FUSED],
        edits: &[("attn_qkv", Edit::Each(ungroup_queries))],
        ..PLAIN
    },
    Family {
        classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM", "LlavaStableLMEpochForCausalLM"],
        architecture: "stablelm",
        metadata: stablelm,
        names: &[ATTENTION, QK_NORM, PRE_NORMS, GATED],
        ..PLAIN
    },
    Family {
        classes: &["Starcoder2ForCausalLM"],
        architecture: "starcoder2",
        names: &[ATTENTION, PRE_NORMS, STARCODER2],
        ..PLAIN
    },
];

/// Set the sizes that all of them have, and a feed-forward network of four times the width.
fn sizes(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let width = config.width()? as u32;
    meta.set_own("embedding_length", width);
    meta.set_own("feed_forward_length", width.saturating_mul(4));
    meta.set_own("block_count", config.n_layers()? as u32);
    meta.set_own("attention.head_count", config.n_heads()? as u32);
    Ok(())
}

fn gpt2(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    meta.set_own("context_length", config.need(&["n_ctx", "n_positions"])?);
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_epsilon"])?);
    Ok(())
}

fn bloom(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    let context = config.number(&["seq_length"])?;
    meta.set_own("context_length", context.unwrap_or(config.width()? as u32));
    meta.set_own("attention.head_count_kv", config.n_heads()? as u32);
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_epsilon"])?);
    Ok(())
}

fn gptneox(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    need_numbers(
        config,
        meta,
        &[("context_length", &["max_position_embeddings"]), ("feed_forward_length", &["intermediate_size"])],
    )?;
    let part = config.need_float(&["rotary_pct", "partial_rotary_factor"])?;
    meta.set_own("rope.dimension_count", (part * config.head_dim()? as f32) as u32);
    meta.set_own("use_parallel_residual", config.flag("use_parallel_residual").unwrap_or(true));
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_eps"])?);
    Ok(())
}

fn mpt(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    meta.set_own("context_length", config.need(&["max_seq_len"])?);
    meta.set_own("attention.layer_norm_epsilon", 1e-5);
    let attention =
        config.within("attn_config").ok_or_else(|| config.wrong(&["attn_config"], "an object"))?;
    let n_kv = attention.number(&["kv_n_heads"])?.filter(|n| *n > 0);
    meta.set_some("attention.head_count_kv", n_kv);
    meta.set_some("attention.clamp_kqv", attention.float(&["clip_qkv"])?);
    let alibi = attention.flag("alibi") == Some(true);
    let bias = if alibi { attention.need_float(&["alibi_bias_max"])? } else { 0.0 };
    meta.set_own("attention.max_alibi_bias", bias);
    Ok(())
}

fn falcon(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    // The files do not say.
    meta.set_own("context_length", 2048u32);
    meta.set_own("tensor_data_layout", "jploski");
    meta.set_own("attention.head_count_kv", falcon_heads_kv(config)?);
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_epsilon"])?);
    Ok(())
}

fn falcon_heads_kv(config: &Config) -> Result<u32, Error> {
    Ok(config.number(&["num_kv_heads", "n_head_kv"])?.filter(|n| *n > 0).unwrap_or(1))
}

/// Reorder fused projections: from the queries of each group with its key and value to all queries,
/// all keys, all values.
fn ungroup_queries(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let shape = tensor.shape().to_vec();
    let (n, n_kv) = (at.config.n_heads()?, falcon_heads_kv(at.config)? as usize);
    let groups = tensor.split_axis(0, n_kv)?.split_axis(1, n / n_kv + 2)?;
    let parts = groups.cut(1, &[n / n_kv, 1, 1])?;
    let width = shape.get(1..).unwrap_or_default();
    let flat: Result<Vec<_>, _> = parts
        .iter()
        .map(|part| {
            let rows = part.dim(0) * part.dim(1) * part.dim(2);
            part.reshape(&[&[rows], width].concat())
        })
        .collect();
    Tensor::join(0, flat?)
}

fn stablelm(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    sizes(config, meta)?;
    need_numbers(
        config,
        meta,
        &[
            ("context_length", &["max_position_embeddings"]),
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count_kv", &["num_key_value_heads"]),
        ],
    )?;
    let part = config.rope_outer().need_float(&["partial_rotary_factor"])?;
    meta.set_own("rope.dimension_count", (part * config.head_dim()? as f32) as u32);
    meta.set_own("use_parallel_residual", config.flag("use_parallel_residual").unwrap_or(true));
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_eps", "norm_eps"])?);
    Ok(())
}
