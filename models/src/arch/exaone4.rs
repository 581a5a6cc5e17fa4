//! EXAONE 4 (LG AI Research, 2025, arXiv 2507.11407).
//!
//! Attention and network read the stream as it is; what they add is normalised. The 32B model has
//! three layers with a window, then one that sees everything and knows no positions.

use super::{decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

/// Layers of the model with windows.
const N_LAYER_WINDOWED: usize = 64;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut h = h.clone();
    h.windows.n_swa = h.windows.n_swa.filter(|_| h.n_layer == N_LAYER_WINDOWED);
    let decoder = Decoder {
        attn_norm: None,
        post_attn_norm: Some("post_attention_norm"),
        ffn_norm: None,
        post_ffn_norm: Some("post_ffw_norm"),
        pattern: Pattern::Every(4),
        rope: rope::of_windowed,
        ..Decoder::SPLIT
    };
    decoder.build(b, &h)
}
