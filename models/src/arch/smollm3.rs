//! SmolLM 3 (Hugging Face, 2025, "SmolLM3: smol, multilingual, long-context reasoner"): Llama, but
//! every fourth layer knows no positions.

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| match (layer.il + 1).is_multiple_of(4) {
            true => Ok(None),
            false => rope::of_layer(b, h, layer, pairs).map(Some),
        },
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
