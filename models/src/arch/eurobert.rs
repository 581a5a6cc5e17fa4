//! EuroBERT (Boizard et al., 2025, arXiv 2503.05500) and the text encoder of
//! llama-embed-nemotron (Babakhin et al., 2025, arXiv 2511.07025): a decoder's layers, but every
//! token sees all of its text.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { is_encoder: true, ..Decoder::SPLIT }.build(b, h)
}

/// Describe an encoder with the layers of Llama.
pub(super) fn build_llama(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { is_encoder: true, ..Decoder::LLAMA }.build(b, h)
}
