//! Command R and Cohere 2.

use super::standard::{self, need_numbers};
use super::{Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, GATED, PRE_NORMS, QK_NORM};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["CohereForCausalLM"],
        architecture: "command-r",
        prepare: |config| {
            let context = config.need(&["model_max_length", "max_position_embeddings"])?;
            config.set("max_position_embeddings", context);
            Ok(())
        },
        metadata: scaled,
        names: &[ATTENTION, QK_NORM, PRE_NORMS, GATED],
        ..PLAIN
    },
    Family {
        classes: &["Cohere2ForCausalLM"],
        architecture: "cohere2",
        metadata: |config, meta| {
            scaled(config, meta)?;
            need_numbers(
                config,
                meta,
                &[("attention.sliding_window", &["sliding_window"]), ("vocab_size", &["vocab_size"])],
            )?;
            let part = config.need_float(&["rotary_pct"])?;
            let dim = config.width()? / config.n_heads()?;
            meta.set_own("rope.dimension_count", (part * dim as f32) as u32);
            Ok(())
        },
        // The biases of its norms are zeros.
        rename: |_, name| (!name.ends_with(".bias")).then_some(name),
        names: &[ATTENTION, PRE_NORMS, GATED],
        edits: &[("ffn_norm", Edit::Drop)],
        ..PLAIN
    },
];

/// Set the usual keys and the scale of logits.
fn scaled(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    meta.set_own("logit_scale", config.need_float(&["logit_scale"])?);
    meta.set_own("rope.scaling.type", "none");
    Ok(())
}
