//! Hunyuan (Tencent, 2025, the model cards of Hunyuan-A13B and of Hunyuan-0.5B to 7B), with one
//! network a layer or with experts: Qwen 3, but queries and keys are rotated before their norms.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rotates_first: true, ..Decoder::SPLIT }.build(b, h)
}
