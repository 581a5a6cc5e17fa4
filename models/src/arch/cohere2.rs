//! Command R7B and Command A (Cohere, 2025, arXiv 2504.00698).
//!
//! Three layers with a window, whose queries and keys are rotated, then one without either.

use super::{command_r, decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder { pattern: Pattern::Every(4), rope: rope::of_windowed, ..command_r::decoder(h) };
    decoder.build(b, h)
}
