//! LFM2 (Liquid AI, 2025, arXiv 2511.23404): short gated convolutions in most layers, attention in
//! the others.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a convolution, of `shortconv.l_cache`
//! taps, whose last inputs are the layer's state. A window, where the file states one, is that of
//! every layer that attends. The final norm is named `token_embd_norm`.

use super::{
    blocks::{self, Ffn},
    rope,
};
use crate::{
    error::Error,
    graph::{Builder, Linear, Norm, Value},
    hparams::{Hparams, Pattern},
};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers_by(&Pattern::Every(0)) {
        let rope = Some(rope::of_layer(b, h, &layer, Pairs::Split)?);
        b.layer(layer.attends().then(|| blocks::cells(&layer, rope)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let (mixed, output) = match layer.attends() {
            true => (blocks::attention(b, h, &layer, normed, rope)?, "attn_output"),
            false => (convolved(b, h, normed)?, "shortconv.out_proj"),
        };
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, output)?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        blocks::add_network(b, Ffn::of_layer(&layer), x, normed)?;
    }
    b.head();
    let x = b.norm(x, Norm::rms("token_embd_norm", h.norm_rms_eps))?;
    b.logits(x, h.n_vocab, None)
}

/// Return `c * conv(b * x)`, up to, not including, the output projection; b, c and x come from one
/// matrix.
fn convolved(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let n_taps = h.n_taps.ok_or_else(|| h.missing("shortconv.l_cache"))?;
    let parts = [("b", h.n_embd), ("c", h.n_embd), ("x", h.n_embd)];
    let [before, behind, x] = b.linears(x, Linear::fused("shortconv.in_proj", parts))?;
    b.mul(x, before);
    let y = b.conv(x, "shortconv.conv", n_taps, false)?;
    b.mul(y, behind);
    Ok(y)
}
