//! The Gemma family: scaled embeddings, norms before and behind every branch, a GELU gate.
//!
//! Embeddings are multiplied by the square root of their width. Norm weights of GGUF files contain
//! the 1 that the papers add. Some layers have a window (`attention.sliding_window`), by a pattern
//! that the file or the member states. Scores are scaled by one over the square root of a query's
//! width, but in one size of each member by that of the residual stream divided by the heads.

use super::blocks::{self, Ffn};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, Norm, RopeId, Scores, Value},
    hparams::{Hparams, LayerHparams, Pattern},
};

/// The differences between members of the family.
pub(super) struct Member<'m> {
    /// Layers of the member's size whose queries are scaled by the width of the residual stream a
    /// head.
    pub(super) n_layer_scaled_by_embd: usize,
    /// The layers that have a window, if the file does not say.
    pub(super) pattern: Pattern,
    /// Declares the rotation of a layer.
    pub(super) rope: Rope<'m>,
    /// Cap of attention scores.
    pub(super) attn_soft_cap: Option<f32>,
    /// Cap of the scores of the vocabulary.
    pub(super) final_soft_cap: Option<f32>,
}

pub(super) type Rope<'m> = &'m dyn Fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams) -> Result<RopeId, Error>;

/// Describe a member of the family.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, member: &Member<'_>) -> Result<(), Error> {
    let mut x = blocks::embed_scaled(b, h, libm::sqrtf(h.n_embd as f32))?;
    for layer in h.layers_by(&member.pattern) {
        let rope = Some((member.rope)(b, h, &layer)?);
        b.layer(Some(blocks::cells(&layer, rope)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let scores = Scores { scale: attention_scale(h, member, &layer), soft_cap: member.attn_soft_cap };
        let attn = blocks::attention_scored(b, h, &layer, normed, rope, scores)?;
        let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
        x = residual;
        let attn = b.linear(attn, Linear::new("attn_output", h.n_embd))?;
        add_normed(b, x, attn, Norm::rms("post_attention_norm", h.norm_rms_eps))?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        let ffn = Ffn { activation: Activation::Gelu, ..Ffn::of_layer(&layer) };
        let out = blocks::network(b, h, ffn, normed)?;
        add_normed(b, x, out, Norm::rms("post_ffw_norm", h.norm_rms_eps))?;
    }
    b.head();
    let x = b.norm(x, Norm::rms("output_norm", h.norm_rms_eps))?;
    b.logits(x, h.n_vocab, member.final_soft_cap)
}

/// Return the factor of scores: the file's, or the member's.
fn attention_scale(h: &Hparams, member: &Member<'_>, layer: &LayerHparams) -> f32 {
    let by_embd = h.f_attention_scale.is_none() && h.n_layer == member.n_layer_scaled_by_embd;
    match h.n_embd.checked_div(layer.n_head) {
        Some(width) if by_embd => 1.0 / libm::sqrtf(width.max(1) as f32),
        _ => h.attention_scale(layer),
    }
}

/// Add the branch `y`, normalised, to the residual stream `x`.
fn add_normed(b: &mut Builder<'_, '_>, x: Value, y: Value, norm: Norm) -> Result<(), Error> {
    b.norm_in_place(y, norm)?;
    b.add(x, y);
    Ok(())
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
        let gguf = Gguf::parse(&bytes).unwrap();
        let h = Hparams::read(&gguf).unwrap();
        let member = Member {
            n_layer_scaled_by_embd: 46,
            pattern: Pattern::Every(2),
            rope: &|_, _, _| unreachable!(),
            attn_soft_cap: None,
            final_soft_cap: None,
        };
        attention_scale(&h, &member, &h.layers().next().unwrap())
    }

    #[test]
    fn the_largest_of_a_family_scales_queries_by_the_residual_stream() {
        assert_eq!(scale(42, None), 1.0 / 5.0);
        assert_eq!(scale(46, None), 1.0 / 4.0);
        assert_eq!(scale(46, Some(0.5)), 0.5);
    }
}
