//! Command R and R+ (Cohere, 2024, the model cards of C4AI Command R).
//!
//! Layer norms without biases; attention and network read the same normalised stream; scores of the
//! vocabulary are multiplied by `logit_scale`. R+ normalises queries and keys, with weights for
//! each head.

use super::{
    blocks,
    decoder::{Decoder, Residual},
};
use crate::{
    error::Error,
    graph::{Builder, Norm},
    hparams::Hparams,
};

/// The choices of the family.
pub(super) fn decoder(h: &Hparams) -> Decoder {
    Decoder {
        norm: blocks::layer_norm,
        head_norm: |h, layer, name| Norm::layer_groups(name, h.norm_eps, layer.d_k),
        residual: Residual::Parallel,
        logit_scale: h.scales.logit,
        ..Decoder::LLAMA
    }
}

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    decoder(h).build(b, h)
}
