//! Seed-OSS (ByteDance Seed, 2025, the model card of Seed-OSS-36B).
//!
//! Qwen 2 with heads of a width of their own. The norm in front of the network is named
//! `post_attention_norm`.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { ffn_norm: Some("post_attention_norm"), ..Decoder::SPLIT }.build(b, h)
}
