//! Granite, dense and with experts, and the members of Granite 4 without state spaces.

use super::edits::halves;
use super::hybrid::state_layers;
use super::llama::{self, LLAMA, ROTATES_NEIGHBOURS, llama3_factors};
use super::standard::copy_fractions;
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, GATED, Names, PRE_NORMS};
use crate::tensor::Tensor;
use crate::vocab::Style;

/// Experts, stacked, with gates and projections up behind each other.
pub(super) const EXPERTS: Names = &[
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
];

/// The network that every token uses beside experts.
pub(super) const SHARED: Names =
    &[("shared_mlp.input_linear", "ffn_gate_up_shexp"), ("shared_mlp.output_linear", "ffn_down_shexp")];

/// Names of that network where there are no experts.
pub(super) const ALONE: Names =
    &[("shared_mlp.input_linear", "ffn_gate_up"), ("shared_mlp.output_linear", "ffn_down")];

pub(super) const EDITS: &[(&str, Edit)] = &[
    ROTATES_NEIGHBOURS[0],
    ROTATES_NEIGHBOURS[1],
    ("ffn_gate_up_exps", Edit::Parts(super::edits::split_gate_up_experts)),
    ("ffn_gate_up_shexp", Edit::Parts(|_, x| halves(x, 0, ["ffn_gate_shexp", "ffn_up_shexp"]))),
    ("ffn_gate_up", Edit::Parts(|_: At<'_>, x: Tensor| halves(x, 0, ["ffn_gate", "ffn_up"]))),
];

/// Classes of Granite 4 and of Bamba, which mean models with and without state spaces.
pub(super) const HYBRID: &[&str] = &["GraniteMoeHybridForCausalLM", "BambaForCausalLM"];

/// A model of those classes with attention in every layer: what Granite 3 is, with the network
/// under another name.
const WITHOUT_STATES: Family = Family {
    classes: HYBRID,
    architecture: "granite",
    when: |config| state_layers(config).is_empty(),
    metadata: alone,
    names: &[ATTENTION, PRE_NORMS, ALONE],
    edits: EDITS,
    extra: llama3_factors,
    vocabulary: &[Style::SentencePiece, Style::Bpe],
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["GraniteForCausalLM"],
        architecture: "granite",
        metadata,
        names: &[ATTENTION, PRE_NORMS, GATED],
        ..LLAMA
    },
    Family {
        classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
        architecture: "granitemoe",
        metadata: experts,
        names: &[ATTENTION, PRE_NORMS, EXPERTS, SHARED],
        edits: EDITS,
        ..LLAMA
    },
    Family {
        architecture: "granitemoe",
        when: |config| state_layers(config).is_empty() && has_experts(config),
        metadata: experts,
        names: &[ATTENTION, PRE_NORMS, EXPERTS, SHARED],
        ..WITHOUT_STATES
    },
    WITHOUT_STATES,
];

/// Set Llama's keys and the scales. Granite's heads have no size of their own.
pub(super) fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let mut config = config.clone();
    config.set("head_dim", serde_json::Value::Null);
    llama::metadata(&config, meta)?;
    copy_fractions(
        &config,
        meta,
        &[
            ("attention.scale", &["attention_multiplier"]),
            ("embedding_scale", &["embedding_multiplier"]),
            ("residual_scale", &["residual_multiplier"]),
            ("logit_scale", &["logits_scaling"]),
        ],
    )
}

/// Set the keys of Granite with experts.
pub(super) fn experts(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    let shared = config.number(&["shared_intermediate_size"])?.filter(|n| *n > 0);
    meta.set_some("expert_shared_feed_forward_length", shared);
    Ok(())
}

/// Set the keys of Granite 4 without state spaces and experts, whose network is the shared one.
fn alone(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    metadata(config, meta)?;
    meta.set_own("feed_forward_length", config.need(&["shared_intermediate_size"])?);
    Ok(())
}

/// Return true for models with experts.
pub(super) fn has_experts(config: &Config) -> bool {
    config.number(&["num_local_experts"]).is_ok_and(|n| n.is_some_and(|n| n > 0))
}
