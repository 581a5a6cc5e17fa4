//! LFM 2, dense and with experts: short convolutions between layers with attention.

use super::standard::{self, SIGMOID, need_numbers};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, Names, QK_NORM};
use crate::tensor::Tensor;

/// The block of LFM 2.
const LFM2: Names = &[
    ("operator_norm", "attn_norm"),
    ("ffn_norm", "ffn_norm"),
    ("self_attn.out_proj", "attn_output"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("conv.conv", "shortconv.conv"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w2", "ffn_down"),
    ("feed_forward.w3", "ffn_up"),
];

/// Experts of LFM 2.
const EXPERTS: Names = &[
    ("feed_forward.gate", "ffn_gate_inp"),
    ("feed_forward.expert_bias", "exp_probs_b"),
    ("feed_forward.experts.w1", "ffn_gate_exps"),
    ("feed_forward.experts.w2", "ffn_down_exps"),
    ("feed_forward.experts.w3", "ffn_up_exps"),
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM"],
        architecture: "lfm2",
        metadata: dense,
        names: &[LFM2, ATTENTION, QK_NORM],
        edits: &[("shortconv.conv", Edit::Each(flat))],
        ..PLAIN
    },
    Family {
        classes: &["Lfm2MoeForCausalLM"],
        architecture: "lfm2moe",
        metadata: |config, meta| {
            with_heads(config, meta)?;
            need_numbers(
                config,
                meta,
                &[
                    ("expert_feed_forward_length", &["moe_intermediate_size"]),
                    ("leading_dense_block_count", &["num_dense_layers"]),
                ],
            )?;
            meta.set_own("expert_gating_func", SIGMOID);
            Ok(())
        },
        rename: |_, name| Some(name.replace(".expert_bias", ".expert_bias.bias")),
        names: &[LFM2, EXPERTS, ATTENTION, QK_NORM],
        edits: &[("shortconv.conv", Edit::Each(flat))],
        ..PLAIN
    },
];

/// Set the usual keys; layers without attention have no heads of keys.
fn with_heads(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    let n = config.need(&["num_key_value_heads"])?.cast_signed();
    let kinds = config.texts("layer_types");
    if kinds.len() != config.n_layers()? {
        return Err(config.wrong(&["layer_types"], "a kind for each layer"));
    }
    let heads = kinds.iter().map(|kind| if *kind == "full_attention" { n } else { 0 });
    meta.set_own("attention.head_count_kv", heads.collect::<Vec<_>>());
    need_numbers(config, meta, &[("vocab_size", &["vocab_size"]), ("shortconv.l_cache", &["conv_L_cache"])])
}

/// Set the keys of LFM 2 without experts.
fn dense(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    with_heads(config, meta)?;
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["norm_eps"])?);
    let mut n = f64::from(config.need(&["block_ff_dim", "intermediate_size"])?);
    if config.flag("block_auto_adjust_ff_dim") == Some(true) {
        n = (2.0 * n / 3.0).trunc();
        if let Some(factor) = config.get(&["block_ffn_dim_multiplier"]).and_then(serde_json::Value::as_f64) {
            n = (factor * n).trunc();
        }
        let multiple = config.size(&["block_multiple_of"])? as f64;
        n = multiple * (n / multiple).ceil();
    }
    meta.set_own("feed_forward_length", n as u32);
    Ok(())
}

/// Drop the middle dimension of a kernel for each channel.
fn flat(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    match tensor.shape() {
        &[n, 1, width] => tensor.reshape(&[n, width]),
        _ => Ok(tensor),
    }
}
