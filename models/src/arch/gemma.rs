//! What the Gemma family shares: scaled embeddings, norms before and behind every branch, a GELU gate.

use super::blocks;
use crate::{
    error::Error,
    graph::{Activation, Builder, RopeId, Scores, Value},
    hparams::{Hparams, Pattern},
};
use backstitch_kv::LayerSpec;

/// Where the members of the family differ.
pub(super) struct Member {
    /// Layers of the member whose queries are scaled by the width of the residual stream a head, not of a query.
    pub(super) n_layer_scaled_by_embd: usize,
    /// Which layers have a window, if the file does not say.
    pub(super) pattern: Pattern,
    /// Rotation of layers that see everything, and of those with a window.
    pub(super) ropes: [RopeId; 2],
    /// Cap of attention scores; 0 for none.
    pub(super) attn_soft_cap: f32,
    /// Cap of the scores of the vocabulary; 0 for none.
    pub(super) final_soft_cap: f32,
}

/// The whole graph of a member.
pub(super) fn transformer(b: &mut Builder<'_, '_>, h: &Hparams, member: &Member) -> Result<(), Error> {
    let scores = Scores { scale: attention_scale(h, member), soft_cap: member.attn_soft_cap };
    let scale = libm::sqrtf(h.n_embd as f32);
    let mut x = b.embed_scaled("token_embd.weight", h.n_vocab, h.n_embd, scale)?;
    for il in 0..h.n_layer {
        let [full, windowed] = member.ropes;
        let (rope, attention) = match h.windows.of_layer(il, &member.pattern) {
            Some(window) => (windowed, h.windowed_layer(b, windowed, window)),
            None => (full, h.attention_layer(b, full)),
        };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let mut attn = blocks::attention_with(b, h, normed, rope, scores)?;
        if il + 1 == h.n_layer {
            (attn, x) = (b.outputs(attn), b.outputs(x));
        }
        let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
        let [attn] = b.linears(attn, [output], ["attn_out"]);
        add_normed(b, h, x, attn, "post_attention_norm.weight")?;
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
        let out = feed_forward(b, h, normed)?;
        add_normed(b, h, x, out, "post_ffw_norm.weight")?;
    }
    b.head();
    let x = b.rms_norm("output_norm", x, "output_norm.weight", h.norm_rms_eps)?;
    b.capped_logits(x, h.n_vocab, member.final_soft_cap)
}

/// The file's factor, or one over the square root of a width: a query's, but in one size of each member that of the
/// residual stream divided by the heads.
fn attention_scale(h: &Hparams, member: &Member) -> f32 {
    match h.f_attention_scale {
        None if h.n_layer == member.n_layer_scaled_by_embd => {
            1.0 / libm::sqrtf((h.n_embd / h.n_head).max(1) as f32)
        }
        _ => h.attention_scale(),
    }
}

/// Adds the branch `y`, normalised, to the residual stream `x`.
fn add_normed(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, y: Value, weight: &str) -> Result<(), Error> {
    b.group_norm(y, weight, h.n_embd, h.n_embd, h.norm_rms_eps)?;
    b.add(x, y);
    Ok(())
}

/// `down(gelu(gate(x)) * up(x))`.
fn feed_forward(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let matrices = [b.linear("ffn_gate", h.n_ff, h.n_embd)?, b.linear("ffn_up", h.n_ff, h.n_embd)?];
    let [gate, up] = b.linears(x, matrices, ["gate", "up"]);
    let product = b.gate(Activation::Gelu, gate, up);
    let down = b.linear("ffn_down", h.n_embd, h.n_ff)?;
    let [out] = b.linears(product, [down], ["down"]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, Writer};
    use backstitch_core::rope::{Pairs, Rope};

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
        let mut b = Builder::new(&gguf);
        let rope = Rope {
            n_rot: 24,
            pairs: Pairs::Split,
            freq_base: 1e4,
            freq_scale: 1.0,
            attn_factor: 1.0,
            yarn: None,
        };
        let rope = b.rope(rope, "rope_freqs.weight").unwrap();
        let member = Member {
            n_layer_scaled_by_embd: 46,
            pattern: Pattern::Every(2),
            ropes: [rope; 2],
            attn_soft_cap: 0.0,
            final_soft_cap: 0.0,
        };
        attention_scale(&h, &member)
    }

    #[test]
    fn the_largest_of_a_family_scales_queries_by_the_residual_stream() {
        assert_eq!(scale(42, None), 1.0 / 5.0);
        assert_eq!(scale(46, None), 1.0 / 4.0);
        assert_eq!(scale(46, Some(0.5)), 0.5);
    }
}
