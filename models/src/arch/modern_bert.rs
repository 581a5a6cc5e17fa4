//! ModernBERT (Warner et al., 2024, arXiv 2412.13663).
//!
//! Norms stand in front of attention and network, but for the first attention, and have no biases.
//! Every third layer, from the first on, sees the whole text, the others half a window to each
//! side; each kind has its own base of frequencies. `ffn_up` has the gate's rows before its own.

use super::{blocks, decoder::Branch, rope};
use crate::{
    error::Error,
    graph::{Builder, Cells, Scores},
    hparams::{Hparams, Pattern},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::Window;

/// One of so many layers sees the whole text, unless the file says otherwise.
const INTERVAL: u32 = 3;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    b.norm_in_place(x, blocks::layer_norm(h, "token_embd_norm"))?;
    for layer in h.layers_by(Pattern::FirstOf(INTERVAL)) {
        let rope = rope::of_layer(b, h, &layer, Pairs::Split)?;
        let window = layer.window.map(Window::Symmetric);
        b.encoder_layer(Cells { window, ..blocks::cells(&layer, Some(rope)) });
        let normed = match b.has("attn_norm.weight") {
            true => b.norm(x, blocks::layer_norm(h, "attn_norm"))?,
            false => x,
        };
        let qkv = blocks::qkv(b, h, &layer, normed)?;
        blocks::rotate(b, &layer, qkv, Some(rope));
        let attn = b.attend(qkv, Scores::scaled(h.attention_scale(&layer)));
        let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
        x = residual;
        b.add_linear(x, attn, "attn_output")?;
        let normed = b.norm(x, blocks::layer_norm(h, "ffn_norm"))?;
        let branch = Branch::to(x);
        blocks::gelu_gated_network(b, h, &layer, normed, branch)?;
        b.end_layer(x);
    }
    b.head();
    b.norm_in_place(x, blocks::layer_norm(h, "output_norm"))?;
    b.embeddings(x);
    Ok(())
}
