//! Llama (Touvron et al., 2023, arXiv 2302.13971), and the models with its layout: Mistral,
//! Mixtral, TinyLlama, SmolLM.
//!
//! The plain pre-norm transformer of `blocks::transformer`. Rotation takes neighbouring dimensions
//! as pairs; Llama 3 divides its frequencies by `rope_freqs.weight`. Files with `expert_count` have
//! a mixture of experts in the place of the network (Mixtral), and biases are used where a file has
//! them.

use super::blocks;
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    blocks::transformer(b, h, Pairs::Adjacent)
}
