//! Gemma (Gemma Team, 2024, arXiv 2403.08295), and what its successors share with it.
//!
//! Embeddings are multiplied by the square root of their width; gates are by GELU. Norm weights of
//! GGUF files contain the 1 that the papers add. From Gemma 2 on, what attention and network add is
//! normalised too, and some layers have a window.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    decoder(h).build(b, h)
}

/// The choices of Gemma.
fn decoder(h: &Hparams) -> Decoder {
    Decoder {
        embed_scale: libm::sqrtf(h.n_embd as f32),
        feed_forward: blocks::gelu_gated_network,
        ..Decoder::SPLIT
    }
}

/// The choices of Gemma 2 and later.
pub(super) fn normed(h: &Hparams) -> Decoder {
    Decoder {
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        final_soft_cap: h.final_soft_cap,
        ..decoder(h)
    }
}

/// Return the factor of scores: the file's, or one over the square root of a query's width; the
/// member with `n_layer` layers takes the width of the residual stream a head in its place.
pub(super) fn attention_scale(h: &Hparams, layer: &LayerHparams, n_layer: usize) -> f32 {
    let by_embd = h.f_attention_scale.is_none() && h.n_layer == n_layer;
    match h.n_embd.checked_div(layer.n_head) {
        Some(width) if by_embd => 1.0 / libm::sqrtf(width.max(1) as f32),
        _ => h.attention_scale(layer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, Writer};

    fn scale(n_layer: u32, own: Option<f32>) -> f32 {
        let mut writer = Writer::new();
        writer.set("general.architecture", "gemma2").unwrap();
        let numbers = [
            ("gemma2.context_length", 128),
            ("gemma2.embedding_length", 64),
            ("gemma2.block_count", n_layer),
            ("gemma2.attention.head_count", 4),
            ("gemma2.attention.key_length", 25),
            ("gemma2.rope.dimension_count", 24),
            ("gemma2.feed_forward_length", 96),
            ("gemma2.vocab_size", 300),
        ];
        for (key, n) in numbers {
            writer.set(key, n).unwrap();
        }
        if let Some(own) = own {
            writer.set("gemma2.attention.scale", own).unwrap();
        }
        let bytes = writer.to_bytes();
        let h = Hparams::read(&Gguf::parse(&bytes).unwrap()).unwrap();
        attention_scale(&h, &h.layers().next().unwrap(), 46)
    }

    #[test]
    fn the_largest_of_a_family_scales_queries_by_the_residual_stream() {
        assert_eq!(scale(42, None), 1.0 / 5.0);
        assert_eq!(scale(46, None), 1.0 / 4.0);
        assert_eq!(scale(46, Some(0.5)), 0.5);
    }
}
