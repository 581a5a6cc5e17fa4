//! Hunyuan (Tencent, 2025, the model cards of Hunyuan-A13B and of Hunyuan-0.5B to 7B), with one
//! network a layer or with experts, and Maincoder (Maincode, 2025, the model card of Maincoder-1B):
//! Qwen 3 or Llama, but queries and keys are rotated before their norms.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rotates_first: true, ..Decoder::SPLIT }.build(b, h)
}

/// Describe Maincoder.
pub(super) fn build_maincoder(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rotates_first: true, ..Decoder::LLAMA }.build(b, h)
}
