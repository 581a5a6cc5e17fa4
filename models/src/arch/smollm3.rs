//! SmolLM 3 (Hugging Face, 2025, "SmolLM3: smol, multilingual, long-context reasoner"): Llama, but
//! every fourth layer knows no positions.

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rope: rope::three_of_four, ..Decoder::LLAMA }.build(b, h)
}
