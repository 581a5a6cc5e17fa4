//! MiniCPM 3 (OpenBMB, 2024, the model card of MiniCPM3-4B): latent attention, whose cells hold the
//! keys and values of all heads, and factors that files do not state.
//!
//! Frequencies have divisors for short and for long contexts, though files name no scaling.

use super::{decoder::Decoder, mla, rope};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::{Hparams, Scales},
};

/// Factor of the embeddings.
const EMBED_SCALE: f32 = 12.0;
/// Factor of what is added to the stream, times the square root of the number of layers.
const DEPTH_SCALE: f32 = 1.4;
/// The width for which scores of the vocabulary need no factor.
const BASE_WIDTH: f32 = 256.0;

/// The factors of the family; that of the vocabulary's scores is no divisor.
pub(super) fn scales(h: &Hparams) -> Scales {
    Scales {
        embedding: EMBED_SCALE,
        residual: DEPTH_SCALE / libm::sqrtf(h.n_layer as f32),
        logit: BASE_WIDTH / h.n_embd as f32,
    }
}

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let Scales { embedding, residual, logit } = scales(h);
    let decoder = Decoder {
        embed_scale: embedding,
        residual_scale: residual,
        logit_scale: logit,
        rope: rope::long_if_there(b),
        cells: mla::cells,
        scores: |_, layer| Scores::scaled(1.0 / libm::sqrtf(layer.d_k as f32)),
        attention: mla::attention,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
