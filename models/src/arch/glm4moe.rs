//! GLM-4.5 and its successors with experts (GLM team, 2025, arXiv 2508.06471).
//!
//! The norm in front of the network is named `post_attention_norm`. Experts stand behind a few
//! layers with one network, beside a network for all tokens; sigmoids with a bias choose them.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        ffn_norm: Some("post_attention_norm"),
        feed_forward: blocks::gated_network_by_sigmoid,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
