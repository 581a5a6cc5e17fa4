//! Mamba 1 and 2.

use super::edits::{column, neg_exp, neg_exp_column, squeeze};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{Names, STATE_SPACE};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// The norm before each mixer.
const NORM: Names = &[("norm", "attn_norm")];

/// Names of files for the sizes of state spaces, also with a prefix.
const WIDTH: &[&str] = &["hidden_size", "d_model", "dim"];
const KERNEL: &[&str] = &["conv_kernel", "d_conv", "mamba_d_conv"];
const STATE: &[&str] = &["state_size", "d_state", "mamba_d_state"];
pub(super) const INNER: &[&str] = &["mamba_d_ssm", "intermediate_size", "d_inner"];

/// Length of contexts that such models do not limit.
pub(super) const ENDLESS: u32 = 1 << 20;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["MambaForCausalLM", "MambaLMHeadModel", "FalconMambaForCausalLM"],
        architecture: "mamba",
        prepare: |config| pad_vocabulary(config, 8),
        metadata: first,
        rename: |_, name| Some(mixer(&name)),
        names: &[NORM, STATE_SPACE],
        edits: &[("ssm_a", Edit::Each(neg_exp)), ("ssm_conv1d", Edit::Each(squeeze))],
        drops_tied_output: true,
        vocabulary: &[Style::Bpe, Style::SentencePiece],
        ..PLAIN
    },
    Family {
        classes: &["Mamba2ForCausalLM"],
        architecture: "mamba2",
        prepare: |config| pad_vocabulary(config, 16),
        metadata: second,
        rename: |_, name| {
            let own = name.starts_with("model.backbone") || name.starts_with("model.lm_head");
            Some(mixer(if own { name.trim_start_matches("model.") } else { &name }))
        },
        names: &[NORM, STATE_SPACE],
        edits: SECOND,
        vocabulary: &[Style::SentencePiece, Style::Bpe],
        ..PLAIN
    },
];

/// Edits of state spaces of the second kind.
pub(super) const SECOND: &[(&str, Edit)] = &[
    ("ssm_a", Edit::Each(neg_exp_column)),
    ("ssm_d", Edit::Each(column)),
    ("ssm_conv1d", Edit::Each(squeeze)),
    ("ssm_norm", Edit::Each(grouped)),
];

/// Drop the prefix of a mixer, and give the bias of time steps the name of one.
pub(super) fn mixer(name: &str) -> String {
    name.replace(".mixer.", ".ssm.").replace(".mamba.", ".ssm.").replace(".ssm.dt_bias", ".ssm.dt_proj.bias")
}

/// Round the vocabulary's size up, as the models do.
pub(super) fn pad_vocabulary(config: &mut Config, otherwise: u32) -> Result<(), Error> {
    let size = config.need(&["vocab_size"])?;
    let multiple = config.number(&["pad_vocab_size_multiple"])?.unwrap_or(otherwise).max(1);
    let padded =
        size.checked_next_multiple_of(multiple).ok_or_else(|| config.wrong(&["vocab_size"], "less"))?;
    config.set("vocab_size", padded);
    Ok(())
}

/// Return the number of groups of a state space.
fn n_groups(config: &Config) -> Result<usize, Error> {
    let n = config.number(&["n_groups", "mamba_n_groups", "num_groups"])?;
    Ok(n.filter(|n| *n > 0).unwrap_or(1) as usize)
}

/// Give the weights of a norm a row for each group.
pub(super) fn grouped(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    tensor.split_axis(0, n_groups(at.config)?)
}

/// Set the keys that all state spaces without attention have.
fn common(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("context_length", ENDLESS);
    meta.set_own("embedding_length", config.need(WIDTH)?);
    // Nothing uses them, but engines ask for them.
    meta.set_own("feed_forward_length", 0u32);
    meta.set_own("attention.head_count", 0u32);
    meta.set_own("block_count", config.n_layers()? as u32);
    meta.set_own("ssm.conv_kernel", config.number(KERNEL)?.unwrap_or(4));
    let epsilon = config.float(&["layer_norm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    meta.set_own("attention.layer_norm_rms_epsilon", epsilon);
    Ok(())
}

/// Set the keys of Mamba 1.
fn first(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    let width = config.need(WIDTH)?;
    let inner = config.number(&["intermediate_size", "d_inner"])?.unwrap_or(width.saturating_mul(2));
    if inner != width.saturating_mul(2) {
        return Err(config.wrong(&["intermediate_size", "d_inner"], "twice the width"));
    }
    meta.set_own("ssm.inner_size", inner);
    meta.set_own("ssm.state_size", config.number(STATE)?.unwrap_or(16));
    let rank = config.number(&["time_step_rank", "dt_rank"])?.unwrap_or(width.div_ceil(16));
    meta.set_own("ssm.time_step_rank", rank);
    meta.set_own("ssm.dt_b_c_rms", config.text(&["model_type"]) == Some("falcon_mamba"));
    Ok(())
}

/// Set the keys of Mamba 2.
pub(super) fn second(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    let expand = config.number(&["mamba_expand", "expand"])?.unwrap_or(2);
    let inner = config.number(INNER)?.unwrap_or(expand.saturating_mul(config.need(WIDTH)?));
    let head = config.number(&["mamba_d_head", "head_dim"])?.unwrap_or(64);
    if head == 0 || inner % head != 0 {
        return Err(config.wrong(&["mamba_d_head", "head_dim"], &format!("a divisor of {inner}")));
    }
    meta.set_own("ssm.inner_size", inner);
    meta.set_own("ssm.state_size", config.number(STATE)?.unwrap_or(128));
    meta.set_own("ssm.time_step_rank", inner / head);
    meta.set_own("ssm.group_count", n_groups(config)? as u32);
    Ok(())
}
