//! Qwen 3 Next and 3.5: layers with delta rules between layers with attention.

use super::edits::{neg_exp, squeeze};
use super::qwen::{EDITS, STACKED, experts, stacked};
use super::standard::integers;
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, EXPERTS, GATED, Names, QK_NORM, SHARED_EXPERT, STATE_SPACE};
use crate::tensor::Tensor;

/// Projections of the delta rules, and layers that predict further tokens.
const LINEAR: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("ssm.in_proj_qkvz", "attn_qkvz"),
    ("ssm.in_proj_ba", "ssm_ba"),
    ("ssm.in_proj_qkv", "attn_qkv"),
    ("ssm.in_proj_z", "attn_gate"),
    ("ssm.in_proj_a", "ssm_alpha"),
    ("ssm.in_proj_b", "ssm_beta"),
    ("eh_proj", "nextn.eh_proj"),
    ("enorm", "nextn.enorm"),
    ("hnorm", "nextn.hnorm"),
    ("shared_head.norm", "nextn.shared_head_norm"),
];

const NEXT: Family = Family {
    architecture: "qwen3next",
    prepare: count_predictors,
    metadata,
    rename,
    names: &[LINEAR, STATE_SPACE, ATTENTION, QK_NORM, GATED, EXPERTS, SHARED_EXPERT, STACKED],
    edits: &[
        ("ssm_norm", Edit::Each(|_, tensor| Ok(tensor))),
        ("*norm", Edit::Each(super::edits::add_one)),
        ("ssm_a", Edit::Each(neg_exp)),
        ("ssm_conv1d", Edit::Each(squeeze)),
        ("attn_qkvz", Edit::Parts(split_qkvz)),
        EDITS[0],
    ],
    ..PLAIN
};

/// Qwen 3.5 keeps its heads of values in another order than GGUF.
const REORDERED: &[(&str, Edit)] = &[
    NEXT.edits[0],
    NEXT.edits[1],
    ("ssm_a", Edit::Each(|at, tensor| tiled(at, tensor.neg_exp(), 1))),
    ("ssm_dt", Edit::Each(|at, tensor| tiled(at, tensor, 1))),
    ("ssm_alpha", Edit::Each(|at, tensor| tiled(at, tensor, 1))),
    ("ssm_beta", Edit::Each(|at, tensor| tiled(at, tensor, 1))),
    ("attn_gate", Edit::Each(|at, tensor| tiled(at, tensor, value_dim(at.config)?))),
    ("ssm_out", Edit::Each(tiled_columns)),
    ("attn_qkv", Edit::Each(tiled_values)),
    ("ssm_conv1d", Edit::Each(|at, tensor| tiled_values(at, tensor.squeeze()))),
    EDITS[0],
];

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &["Qwen3NextForCausalLM"], ..NEXT },
    Family {
        classes: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"],
        architecture: "qwen35",
        metadata: sections,
        edits: REORDERED,
        ..NEXT
    },
    Family {
        classes: &["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"],
        architecture: "qwen35moe",
        metadata: sections,
        edits: REORDERED,
        ..NEXT
    },
];

/// Count the layers that predict further tokens among the others.
fn count_predictors(config: &mut Config) -> Result<(), Error> {
    let n = config.number(&["mtp_num_hidden_layers"])?.unwrap_or(0);
    let n_main = config.n_layers()? as u32;
    config.set("n_main_layers", n_main);
    config.set("n_layers", n_main + n.min(64));
    Ok(())
}

/// Give tensors the names that tables have.
fn rename(config: &Config, name: String) -> Option<String> {
    let name = name.strip_prefix("model.mtp.").map_or(name.clone(), |rest| format!("mtp.{rest}"));
    let name = match name.strip_prefix("mtp.") {
        Some(rest) => predictor(config, rest)?,
        None => name,
    };
    let name = name.replace(".linear_attn.", ".ssm.").replace(".ssm.dt_bias", ".ssm.dt_proj.bias");
    Some(stacked(name))
}

/// Name a tensor of the layers that predict further tokens.
fn predictor(config: &Config, name: &str) -> Option<String> {
    let first = config.need(&["n_main_layers"]).ok()?;
    if config.n_layers().ok()? as u32 == first {
        return None;
    }
    if let Some((layer, rest)) = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        let layer = layer.parse::<u32>().ok()?.checked_add(first)?;
        return Some(format!("model.layers.{layer}.{rest}"));
    }
    let (path, ending) = name.split_once('.')?;
    let path = match path {
        "fc" => "eh_proj",
        "pre_fc_norm_embedding" => "enorm",
        "pre_fc_norm_hidden" => "hnorm",
        "norm" => "shared_head.norm",
        other => other,
    };
    Some(format!("model.layers.{first}.{path}.{ending}"))
}

fn key_dim(config: &Config) -> Result<usize, Error> {
    config.size(&["linear_key_head_dim"])
}

fn value_dim(config: &Config) -> Result<usize, Error> {
    config.size(&["linear_value_head_dim"])
}

fn n_keys(config: &Config) -> Result<usize, Error> {
    config.size(&["linear_num_key_heads"])
}

fn n_values(config: &Config) -> Result<usize, Error> {
    config.size(&["linear_num_value_heads"])
}

/// Set the keys of experts and of the delta rules.
fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    experts(config, meta)?;
    meta.set_own("ssm.conv_kernel", config.need(&["linear_conv_kernel_dim"])?);
    meta.set_own("ssm.state_size", key_dim(config)? as u32);
    meta.set_own("ssm.group_count", n_keys(config)? as u32);
    meta.set_own("ssm.time_step_rank", n_values(config)? as u32);
    meta.set_own("ssm.inner_size", (value_dim(config)? * n_values(config)?) as u32);
    meta.set_own("full_attention_interval", config.number(&["full_attention_interval"])?.unwrap_or(4));
    let part = config.rope_outer().float(&["partial_rotary_factor"])?.unwrap_or(0.25);
    meta.set_own("rope.dimension_count", (config.head_dim()? as f32 * part) as u32);
    let n_predictors = config.n_layers()? as u32 - config.need(&["n_main_layers"])?;
    meta.set_some("nextn_predict_layers", (n_predictors > 0).then_some(n_predictors));
    Ok(())
}

/// Set the keys of Qwen 3.5, whose positions have several dimensions.
fn sections(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    if integers(&config.rope_outer(), &["mrope_section"]).is_err() {
        meta.set_own("rope.dimension_sections", vec![11, 11, 10, 0]);
    }
    Ok(())
}

/// Split queries, keys, values and gates of each head of keys.
fn split_qkvz(at: At<'_>, tensor: Tensor) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let (n_keys, key) = (n_keys(at.config)?, key_dim(at.config)?);
    let values = n_values(at.config)? / n_keys * value_dim(at.config)?;
    let width = tensor.dim(1);
    let heads = tensor.expect_rank(2)?.split_axis(0, n_keys)?;
    let parts = heads.cut(1, &[key, key, values, values])?;
    let flat: Result<Vec<_>, _> =
        parts.iter().map(|part| part.reshape(&[part.dim(0) * part.dim(1), width])).collect();
    let mut flat = flat?;
    let gates = flat.pop().into_iter().collect();
    Ok(vec![("attn_qkv", Tensor::join(0, flat)?), ("attn_gate", Tensor::join(0, gates)?)])
}

/// Reorder rows, `dim` for each head of values: from those of each head of keys to the first of
/// each, the second of each and so on.
fn tiled(at: At<'_>, tensor: Tensor, dim: usize) -> Result<Tensor, Error> {
    let shape = tensor.shape().to_vec();
    let heads = tensor.split_axis(0, n_keys(at.config)?)?;
    let per_key = n_values(at.config)? / n_keys(at.config)?;
    let split = heads.split_axis(1, per_key)?;
    if split.dim(2) != dim {
        return Err(tensor.misfit(format!("{per_key} heads of {dim} for each head of keys")));
    }
    let mut order: Vec<usize> = (0..split.shape().len()).collect();
    order.swap(0, 1);
    split.permute(&order)?.reshape(&shape)
}

/// Reorder the columns of a matrix that reads values. As rows they keep the factors of adapters
/// apart.
fn tiled_columns(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    tiled(at, tensor.transpose()?, value_dim(at.config)?)?.transpose()
}

/// Reorder the rows of values behind those of queries and keys.
fn tiled_values(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let n = 2 * n_keys(at.config)? * key_dim(at.config)?;
    let values = tensor.dim(0).saturating_sub(n);
    let mut parts = tensor.cut(0, &[n.min(tensor.dim(0)), values])?;
    let last = parts.pop().map(|part| tiled(at, part, value_dim(at.config)?)).transpose()?;
    parts.extend(last);
    Tensor::join(0, parts)
}
