//! PLaMo 3 (Preferred Networks, 2025, the model cards of PLaMo-3-NICT).
//!
//! Seven layers with a window, then one without; each kind has its own base of frequencies. Queries
//! and keys are normalised head by head, and so is what attention and network add.

use super::decoder::Decoder;
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        pattern: Pattern::Every(8),
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
