//! The text model of Qwen 3 VL (Qwen team, 2025, arXiv 2511.21631), with one network a layer or
//! with experts: Qwen 3 with positions that have axes (`rope.dimension_sections`).

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rope: rope::interleaved, ..Decoder::SPLIT }.build(b, h)
}
