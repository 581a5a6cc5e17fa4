//! The text model of Qwen 2 VL and Qwen 2.5 VL (Wang et al., 2024, arXiv 2409.12191).
//!
//! Positions have axes, time, height and width, each of which turns a section of a head
//! (`rope.dimension_sections`).

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rope: rope::sections, ..Decoder::SPLIT }.build(b, h)
}
