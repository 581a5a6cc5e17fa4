//! Granite 3 (IBM, 2024, "Granite 3.0 Language Models"), with one network a layer or with experts,
//! and its members with windows and sinks.
//!
//! Embeddings, what is added to the stream, and attention scores have factors, and scores of the
//! vocabulary a divisor (`embedding_scale`, `residual_scale`, `attention.scale`, `logit_scale`).
//! `attention.rope_pattern` has an element a layer, 0 for layers that know no positions.

use super::{decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

/// The choices of the family.
pub(super) fn decoder(h: &Hparams) -> Decoder {
    Decoder {
        embed_scale: h.scales.embedding,
        residual_scale: h.scales.residual,
        logit_scale: 1.0 / h.scales.logit,
        rope: |b, h, layer, pairs| {
            let rotates = match &h.rope_pattern {
                Some(pattern) => pattern.get(layer.il) == Some(&true),
                // Files without a pattern say by this odd key if queries and keys are rotated.
                None => h.rope.finetuned != Some(false),
            };
            rotates.then(|| rope::of_layer(b, h, layer, pairs)).transpose()
        },
        ..Decoder::LLAMA
    }
}

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    decoder(h).build(b, h)
}

/// Describe a member some of whose layers have a window: those of the file's pattern.
pub(super) fn build_windowed(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { pattern: Pattern::Every(0), ..decoder(h) }.build(b, h)
}
