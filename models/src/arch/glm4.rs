//! GLM-4 of April 2025, 9B and 32B (GLM team, the model cards of GLM-4-0414).
//!
//! The results of attention and network are normalised (`post_attention_norm`, `post_ffw_norm`).
//! Half of each head is rotated; queries, keys and values have biases; `ffn_up` has the gate's rows
//! before its own.
//!
//! So are the text models of GLM-4.1V (GLM team, 2025, arXiv 2507.01006), GLM-4.6V Flash and
//! GLM-OCR, whose positions have axes (`rope.dimension_sections`). Their pairs of dimensions lie
//! half a head apart.

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let usual = match h.rope_sections {
        Some([time, height, ..]) if time > 0 && height > 0 => {
            Decoder { rope: rope::sections, ..Decoder::SPLIT }
        }
        _ => Decoder::LLAMA,
    };
    let decoder = Decoder {
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        ..usual
    };
    decoder.build(b, h)
}
