//! GLM-4 of April 2025, 9B and 32B (GLM team, the model cards of GLM-4-0414).
//!
//! The results of attention and network are normalised (`post_attention_norm`, `post_ffw_norm`).
//! Half of each head is rotated; queries, keys and values have biases; `ffn_up` has the gate's rows
//! before its own.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
