//! Llama (Touvron et al., 2023, arXiv 2302.13971), and the models with its layout: Mistral,
//! Mixtral, TinyLlama, SmolLM; InternLM 2, XVERSE, ChatGLM 3 and GLM-4 of 2024, and ERNIE 4.5 with
//! one network a layer or with experts, which files name otherwise.
//!
//! Rotation takes neighbouring dimensions as pairs; Llama 3 divides its frequencies by
//! `rope_freqs.weight`. Files with `expert_count` have a mixture of experts in the place of the
//! network (Mixtral). Biases are used where a file has them, and so are norms of queries and keys.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::LLAMA.build(b, h)
}
