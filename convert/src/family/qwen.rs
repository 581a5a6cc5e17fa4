//! Qwen 2 and 3, dense and with experts, and the text models of Qwen 2 VL.

use super::edits::split_gate_up_experts;
use super::standard::{self, copy_numbers};
use super::{Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, EXPERTS, GATED, Names, PRE_NORMS, QK_NORM, SHARED_EXPERT};
use crate::vocab::Style;

/// Experts that are stacked already, gates and projections up behind each other.
pub(super) const STACKED: Names = &[("mlp.experts.gate_up_proj", "ffn_gate_up_exps")];

/// Edits of models with experts.
pub(super) const EDITS: &[(&str, Edit)] = &[("ffn_gate_up_exps", Edit::Parts(split_gate_up_experts))];

const QWEN2: Family = Family {
    architecture: "qwen2",
    names: &[ATTENTION, PRE_NORMS, GATED],
    vocabulary: &[Style::SentencePiece, Style::Bpe],
    pools: true,
    ..PLAIN
};

const QWEN2MOE: Family = Family {
    architecture: "qwen2moe",
    metadata: experts,
    names: &[ATTENTION, QK_NORM, PRE_NORMS, GATED, EXPERTS, SHARED_EXPERT, STACKED],
    rename: |_, name| Some(stacked(name)),
    edits: EDITS,
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Qwen2ForCausalLM", "Qwen2AudioForConditionalGeneration", "KORMoForCausalLM"],
        ..QWEN2
    },
    Family { classes: &["Qwen2Model"], rename: |_, name| Some(format!("model.{name}")), ..QWEN2 },
    Family {
        classes: &["Qwen3ForCausalLM"],
        architecture: "qwen3",
        names: &[ATTENTION, QK_NORM, PRE_NORMS, GATED],
        ..QWEN2
    },
    Family {
        classes: &["Qwen3Model"],
        architecture: "qwen3",
        rename: |_, name| Some(format!("model.{}", name.trim_start_matches("model."))),
        names: &[ATTENTION, QK_NORM, PRE_NORMS, GATED],
        ..QWEN2
    },
    Family { classes: &["Qwen2MoeForCausalLM"], ..QWEN2MOE },
    Family { classes: &["Qwen3MoeForCausalLM"], architecture: "qwen3moe", ..QWEN2MOE },
    Family {
        classes: &[
            "Qwen2VLForConditionalGeneration",
            "Qwen2VLModel",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen2_5OmniModel",
        ],
        architecture: "qwen2vl",
        rename: |_, name| Some(name.replace("thinker.", "")),
        pools: false,
        ..QWEN2
    },
];

/// Give stacked experts the ending that others have.
pub(super) fn stacked(name: String) -> String {
    let is_stacked = name.ends_with("mlp.experts.gate_up_proj") || name.ends_with("mlp.experts.down_proj");
    if is_stacked { format!("{name}.weight") } else { name }
}

/// Set the usual keys and those of experts.
pub(super) fn experts(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    copy_numbers(
        config,
        meta,
        &[
            ("expert_feed_forward_length", &["moe_intermediate_size"]),
            ("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"]),
        ],
    )
}
