//! Llama (Touvron et al., 2023, arXiv 2302.13971), and the models with its layout: Mistral,
//! Mixtral, TinyLlama, SmolLM.
//!
//! Rotation takes neighbouring dimensions as pairs; Llama 3 divides its frequencies by
//! `rope_freqs.weight`. Files with `expert_count` have a mixture of experts in the place of the
//! network (Mixtral), and biases are used where a file has them.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::LLAMA.build(b, h)
}
