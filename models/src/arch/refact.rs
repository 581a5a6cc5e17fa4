//! Refact 1.6B (Refact.ai, 2023, the model card of Refact-1_6B-fim): Llama without rotation;
//! attention scores fall with the distance, by a slope of each head (ALiBi).

use super::{bloom, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rope: |_, _, _, _| Ok(None), scores: bloom::scores, ..Decoder::LLAMA }.build(b, h)
}
