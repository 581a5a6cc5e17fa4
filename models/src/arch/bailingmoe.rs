//! Ling (Ling team, 2025, arXiv 2503.05139) and the first DeepSeek with experts (Dai et al., 2024,
//! arXiv 2401.06066): Llama with experts beside a network for all tokens. Weights of experts are
//! not renormalised, unless the file says so.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { feed_forward: blocks::gated_network_plain, ..Decoder::LLAMA }.build(b, h)
}
