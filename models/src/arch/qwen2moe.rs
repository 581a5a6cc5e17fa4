//! Qwen 1.5 and 2 with experts (Yang et al., 2024, arXiv 2407.10671).
//!
//! Weights of experts are not renormalised. The network beside them, which all tokens go through,
//! has a gate of its own, a sigmoid of one number a token.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { feed_forward: blocks::gated_network_plain, ..Decoder::SPLIT }.build(b, h)
}
