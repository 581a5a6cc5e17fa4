//! BLOOM (BigScience Workshop, 2022, arXiv 2211.05100).
//!
//! Attention scores fall with the distance, by a slope of each head (ALiBi). Embeddings go through
//! a norm before the first layer.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::{Hparams, LayerHparams},
};

/// The exponent of the last slope; files do not state it.
const MAX_ALIBI_BIAS: f32 = 8.0;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        embedded: |b, h, x| b.norm_in_place(x, blocks::layer_norm(h, "token_embd_norm")),
        rope: |_, _, _, _| Ok(None),
        scores,
        ..Decoder::GPT
    };
    decoder.build(b, h)
}

/// Return the treatment of scores that fall with the distance, also where the file does not say by
/// how much.
pub(super) fn scores(h: &Hparams, layer: &LayerHparams) -> Scores {
    Scores {
        max_alibi_bias: h.max_alibi_bias.or(Some(MAX_ALIBI_BIAS)),
        ..Scores::scaled(h.attention_scale(layer))
    }
}
