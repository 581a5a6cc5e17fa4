//! DeepSeek 2 and 3, and Kimi Linear: compressed keys and values, shared experts.

use super::edits::{neg_exp, split_latent};
use super::standard::{self, copy_numbers, integers, need_numbers};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{
    ATTENTION, EXPERTS, GATED, LATENT_ATTENTION, MIXTRAL_EXPERTS, Names, PRE_NORMS, SHARED_EXPERTS, layer_of,
};
use crate::tensor::Tensor;

/// The delta rules of Kimi Linear.
const KIMI: Names = &[
    ("self_attn.q_conv1d", "ssm_conv1d_q"),
    ("self_attn.k_conv1d", "ssm_conv1d_k"),
    ("self_attn.v_conv1d", "ssm_conv1d_v"),
    ("self_attn.f_a_proj", "ssm_f_a"),
    ("self_attn.f_b_proj", "ssm_f_b"),
    ("self_attn.b_proj", "ssm_beta"),
    ("self_attn.g_a_proj", "ssm_g_a"),
    ("self_attn.g_b_proj", "ssm_g_b"),
    ("self_attn.dt_proj", "ssm_dt"),
    ("self_attn.A_log", "ssm_a"),
    ("self_attn.o_norm", "ssm_norm"),
    ("block_sparse_moe.gate.e_score_correction", "exp_probs_b"),
    ("block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"),
    ("block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"),
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "KimiVLForConditionalGeneration",
            "KimiK25ForConditionalGeneration",
            "YoutuForCausalLM",
        ],
        architecture: "deepseek2",
        // As attention over compressed states it has one head of keys; the file's number is needed
        // to take the projection apart.
        metadata: latent,
        rename: layers_of_text,
        names: &[LATENT_ATTENTION, ATTENTION, PRE_NORMS, GATED, EXPERTS, SHARED_EXPERTS],
        edits: &[("attn_kv_b", Edit::Parts(split_latent))],
        ..PLAIN
    },
    Family {
        classes: &["KimiLinearForCausalLM", "KimiLinearModel"],
        architecture: "kimi-linear",
        metadata: kimi,
        rename: |_, name| Some(name.replace(".dt_bias", ".dt_proj.bias")),
        names: &[KIMI, LATENT_ATTENTION, ATTENTION, PRE_NORMS, GATED, MIXTRAL_EXPERTS],
        edits: &[
            ("attn_kv_b", Edit::Parts(split_latent)),
            ("ssm_a", Edit::Each(neg_exp)),
            ("ssm_conv1d_q", Edit::Each(convolution)),
            ("ssm_conv1d_k", Edit::Each(convolution)),
            ("ssm_conv1d_v", Edit::Each(convolution)),
        ],
        ..PLAIN
    },
];

/// Leave out layers beyond the last, which predict further tokens, and a tied output.
fn layers_of_text(config: &Config, name: String) -> Option<String> {
    if config.flag("tie_word_embeddings") == Some(true) && name.ends_with("lm_head.weight") {
        return None;
    }
    let n_layers = config.n_layers().ok()?;
    layer_of(&name).is_none_or(|layer| layer < n_layers).then_some(name)
}

/// Set the keys of compressed attention and of experts.
fn latent(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let mut own = config.clone();
    own.set("num_key_value_heads", 1);
    if own.get(&["rms_norm_eps"]).is_none() {
        own.set("rms_norm_eps", 1e-6);
    }
    standard::metadata(&own, meta)?;
    let n_layers = config.n_layers()? as u32;
    let has_experts = config.get(&["n_routed_experts"]).is_some();
    let dense = config.number(&["first_k_dense_replace"])?.unwrap_or(if has_experts { 0 } else { n_layers });
    meta.set_own("leading_dense_block_count", dense);
    let rank = config.number(&["kv_lora_rank"])?.unwrap_or(512);
    let (rotated, plain) = (config.need(&["qk_rope_head_dim"])?, config.need(&["qk_nope_head_dim"])?);
    meta.set_own("attention.kv_lora_rank", rank);
    meta.set_own("attention.key_length", rank.saturating_add(rotated));
    meta.set_own("attention.value_length", rank);
    meta.set_own("attention.key_length_mla", plain.saturating_add(rotated));
    need_numbers(
        config,
        meta,
        &[
            ("vocab_size", &["vocab_size"]),
            ("attention.value_length_mla", &["v_head_dim"]),
            ("expert_feed_forward_length", &["moe_intermediate_size", "intermediate_size"]),
            ("rope.dimension_count", &["qk_rope_head_dim"]),
        ],
    )?;
    copy_numbers(
        config,
        meta,
        &[("attention.q_lora_rank", &["q_lora_rank"]), ("expert_count", &["n_routed_experts"])],
    )?;
    meta.set_own("expert_shared_count", config.number(&["n_shared_experts"])?.unwrap_or(0));
    meta.set_some("expert_weights_scale", config.float(&["routed_scaling_factor"])?);
    meta.set_some("expert_weights_norm", config.flag("norm_topk_prob").filter(|norm| *norm));
    const SCALE: &[&str] = &["mscale_all_dim"];
    let rope = config.rope_outer();
    // Multiplied as a double, and rounded once.
    let all = rope.float(SCALE)?.and_then(|_| rope.get(SCALE)?.as_f64());
    meta.set_some("rope.scaling.yarn_log_multiplier", all.map(|x| (0.1 * x) as f32));
    Ok(())
}

/// Set the keys of Kimi Linear.
fn kimi(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    let linear = config
        .within("linear_attn_config")
        .ok_or_else(|| config.wrong(&["linear_attn_config"], "an object"))?;
    // Layers count from 1 here.
    let full = integers(&linear, &["full_attn_layers"])?;
    let layers = 1..=config.n_layers()? as i32;
    let heads: Vec<i32> = layers.map(|layer| i32::from(full.contains(&layer))).collect();
    meta.set_own("attention.head_count_kv", heads);
    copy_numbers(
        &linear,
        meta,
        &[("ssm.conv_kernel", &["short_conv_kernel_size"]), ("kda.head_dim", &["head_dim"])],
    )?;
    let rank = config.need(&["kv_lora_rank", "n_lora_kv"])?;
    let rotated = config.need(&["qk_rope_head_dim", "n_rot"])?;
    meta.set_own("attention.key_length", rank.saturating_add(rotated));
    let plain = config.number(&["qk_nope_head_dim"])?.map(|n| n.saturating_add(rotated));
    meta.set_some("attention.key_length_mla", config.number(&["n_embd_head_k_mla"])?.or(plain));
    need_numbers(
        config,
        meta,
        &[
            ("vocab_size", &["vocab_size"]),
            ("attention.kv_lora_rank", &["kv_lora_rank", "n_lora_kv"]),
            ("rope.dimension_count", &["qk_rope_head_dim", "n_rot"]),
            ("expert_feed_forward_length", &["moe_intermediate_size"]),
            ("expert_shared_count", &["num_shared_experts"]),
            ("leading_dense_block_count", &["first_k_dense_replace"]),
        ],
    )?;
    copy_numbers(
        config,
        meta,
        &[
            ("attention.q_lora_rank", &["q_lora_rank", "n_lora_q"]),
            ("attention.value_length_mla", &["n_embd_head_v_mla", "v_head_dim"]),
        ],
    )?;
    meta.set_own("expert_weights_scale", config.need_float(&["routed_scaling_factor"])?);
    Ok(())
}

/// Give the kernel of a convolution the dimensions that GGUF keeps.
fn convolution(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let (n, width) = (tensor.dim(0), tensor.dim(tensor.shape().len().saturating_sub(1)));
    tensor.reshape(&[1, n, 1, width])
}
