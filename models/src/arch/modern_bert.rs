//! ModernBERT (Warner et al., 2024, arXiv 2412.13663).
//!
//! Norms stand in front of attention and network, but for the first attention, and have no biases.
//! Every third layer, from the first on, sees the whole text, the others half a window to each
//! side; each kind has its own base of frequencies. `ffn_up` has the gate's rows before its own;
//! the gate is GELU's, unless the file says otherwise (`hidden_activation`), as that of Granite
//! Embedding R2 (Awasthy et al., 2025, arXiv 2508.21085) does.

use super::{blocks, blocks::Ffn, decoder::Branch, rope};
use crate::{
    error::Error,
    graph::{Activation, Builder, Cells, Scores},
    hparams::{Hparams, Pattern},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::Window;

/// One of so many layers sees the whole text, unless the file says otherwise.
const INTERVAL: u32 = 3;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let activation = activation(h)?;
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
        Ffn { activation, ..Ffn::of_layer(&layer) }.add(b, h, normed, Branch::to(x))?;
        b.end_layer(x);
    }
    b.head();
    b.norm_in_place(x, blocks::layer_norm(h, "output_norm"))?;
    b.embeddings(x);
    Ok(())
}

/// Return the function of the gates by its name in Hugging Face's configurations.
fn activation(h: &Hparams) -> Result<Activation, Error> {
    match h.hidden_activation.as_deref() {
        None | Some("gelu" | "geglu") => Ok(Activation::Gelu),
        Some("silu" | "swish" | "swiglu") => Ok(Activation::Silu),
        Some(other) => Err(h.invalid("hidden_activation", other, "gelu or silu")),
    }
}
