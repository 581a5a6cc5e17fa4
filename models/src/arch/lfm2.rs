//! LFM2 (Liquid AI, 2025, arXiv 2511.23404): short gated convolutions in most layers, attention in
//! the others; with one network a layer, or with experts in all but the first.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a convolution, of `shortconv.l_cache`
//! taps, whose last inputs are the layer's state. A window, where the file states one, is that of
//! every layer that attends. The final norm is named `token_embd_norm`. Experts are chosen by
//! sigmoids with a bias.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, Gating, Linear, Routing, Value},
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        output_norm: "token_embd_norm",
        pattern: Pattern::Every(0),
        mixer: |b, h, _, x| Ok((convolved(b, h, x)?, "shortconv.out_proj")),
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::Sigmoid, ..Routing::RENORMALISED };
            blocks::network_or_experts(b, h, layer, x, branch, routing)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
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
