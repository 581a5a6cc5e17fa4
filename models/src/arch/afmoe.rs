//! Trinity (Arcee AI, 2025, the model cards of Trinity-Nano and Trinity-Mini).
//!
//! Three layers with a window, whose queries and keys are rotated, then one without either. The
//! result of attention has a gate, a sigmoid of what attention reads (`attn_gate`). Attention and
//! network are normalised before and behind. Experts stand behind a few layers with one network.

use super::{blocks, decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear},
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        embed_scale: libm::sqrtf(h.n_embd as f32),
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        pattern: Pattern::Every(4),
        rope: rope::three_of_four,
        attention: |b, spec, x| {
            let y = blocks::attention(b, spec, x)?;
            let gate = b.linear(x, Linear::new("attn_gate", spec.layer.n_head * spec.layer.d_v))?;
            Ok(b.gate(Activation::Sigmoid, gate, y))
        },
        feed_forward: blocks::gated_network_by_sigmoid,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
