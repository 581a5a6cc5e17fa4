//! PLaMo 2: state spaces and attention in turn, norms with offsets.

use super::edits::{neg_exp, squeeze};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{Names, STATE_SPACE};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// The block of PLaMo 2.
const PLAMO2: Names = &[
    ("pre_mixer_norm", "attn_norm"),
    ("post_mixer_norm", "post_attention_norm"),
    ("pre_mlp_norm", "ffn_norm"),
    ("post_mlp_norm", "post_ffw_norm"),
    ("ssm.qkv_proj", "attn_qkv"),
    ("ssm.o_proj", "attn_output"),
    ("ssm.q", "attn_q_norm"),
    ("ssm.k", "attn_k_norm"),
    ("ssm.bcdt_proj", "ssm_x"),
    ("ssm.dt_norm", "ssm_dt_norm"),
    ("ssm.B_norm", "ssm_b_norm"),
    ("ssm.C_norm", "ssm_c_norm"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

pub(super) const FAMILIES: &[Family] = &[Family {
    classes: &["Plamo2ForCausalLM", "PLaMo2ForCausalLM"],
    architecture: "plamo2",
    metadata,
    rename,
    names: &[PLAMO2, STATE_SPACE],
    edits: &[
        ("ssm_a", Edit::Each(neg_exp)),
        ("ssm_conv1d", Edit::Each(squeeze)),
        ("attn_norm", Edit::Each(|_, x| Ok(x.add(1.0)))),
        ("ffn_norm", Edit::Each(|_, x| Ok(x.add(1.0)))),
        ("output_norm", Edit::Each(|_, x| Ok(x.add(1.0)))),
        ("post_attention_norm", Edit::Bare(|_, x| Ok(x.add(1.0 / 5.0)))),
        ("post_ffw_norm", Edit::Bare(after_network)),
        ("ssm_dt_norm", Edit::Bare(|_, x| Ok(x))),
        ("ssm_b_norm", Edit::Bare(|_, x| Ok(x))),
        ("ssm_c_norm", Edit::Bare(|_, x| Ok(x))),
    ],
    vocabulary: &[Style::Plamo],
    ..PLAIN
}];

/// Add the offset of the norm behind the network: 5 to the power of -3/2.
fn after_network(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    Ok(tensor.add((1.0 / 5f64.powf(1.5)) as f32))
}

/// Give tensors the endings that others have.
fn rename(_: &Config, name: String) -> Option<String> {
    let name = super::mamba::mixer(&name);
    Some(match name.strip_suffix("_weight") {
        Some(path) => format!("{path}.weight"),
        None => name,
    })
}

fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let number = |key: &str, otherwise: u32| Ok::<_, Error>(config.number(&[key])?.unwrap_or(otherwise));
    let n_layers = config.n_layers()?;
    if config.flag("mamba_enabled").unwrap_or(true) {
        let step = config.number(&["mamba_step"])?.unwrap_or(2).max(1) as usize;
        let attends = |layer: usize| {
            if n_layers <= step / 2 { layer + 1 == n_layers } else { layer % step == step / 2 }
        };
        for (key, name, otherwise) in
            [("head_count_kv", "num_key_value_heads", 4), ("head_count", "num_attention_heads", 32)]
        {
            let n = number(name, otherwise)?.cast_signed();
            let heads = (0..n_layers).map(|layer| if attends(layer) { n } else { 0 });
            meta.set_own(&format!("attention.{key}"), heads.collect::<Vec<_>>());
        }
    }
    meta.set_own("vocab_size", config.need(&["vocab_size"])?);
    meta.set_own("block_count", n_layers as u32);
    meta.set_own("context_length", number("max_position_embeddings", 2048)?);
    meta.set_own("embedding_length", number("hidden_size", 4096)?);
    let head = number("hidden_size_per_head", 128)?;
    meta.set_own("attention.key_length", head);
    meta.set_own("attention.value_length", head);
    let epsilon = config.float(&["rms_norm_eps"])?.unwrap_or(1e-6);
    meta.set_own("attention.layer_norm_rms_epsilon", epsilon);
    meta.set_own("rope.freq_base", config.rope_outer().float(&["rope_theta"])?.unwrap_or(10000.0));
    let n_heads = number("mamba_num_heads", 64)?;
    meta.set_own("ssm.state_size", number("mamba_d_state", 64)?);
    meta.set_own("ssm.conv_kernel", number("mamba_d_conv", 4)?);
    meta.set_own("ssm.time_step_rank", n_heads);
    meta.set_own("ssm.inner_size", n_heads.saturating_mul(head));
    meta.set_own("ssm.group_count", 0u32);
    meta.set_own("feed_forward_length", number("intermediate_size", 13312)?);
    Ok(())
}
