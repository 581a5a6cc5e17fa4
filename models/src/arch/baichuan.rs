//! Baichuan and Baichuan 2 (Yang et al., 2023, arXiv 2309.10305).
//!
//! The 7B models are Llama. In those with 13B parameters nothing is rotated; attention scores fall
//! with the distance (ALiBi). Files do not tell which, but for the number of layers.

use super::{decoder::Decoder, refact};
use crate::{error::Error, graph::Builder, hparams::Hparams};

/// Layers of the 13B models.
const N_LAYER_ALIBI: usize = 40;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    match h.n_layer {
        N_LAYER_ALIBI => refact::build(b, h),
        _ => Decoder::LLAMA.build(b, h),
    }
}
