//! Orion 14B (Chen et al., 2024, arXiv 2401.12246): layer norms around Llama's blocks.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { norm: blocks::layer_norm, ..Decoder::SPLIT }.build(b, h)
}
