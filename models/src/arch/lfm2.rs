//! LFM2 (Liquid AI, 2025, arXiv 2511.23404): short gated convolutions in most layers, attention in the others.

use super::{Arch, blocks};
use crate::{
    error::Error,
    graph::{Builder, Value},
    hparams::{Hparams, Pattern},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "lfm2", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Split)?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        let attends = h.attends(il);
        // A window, where the file states one, is that of every layer which attends.
        let attention = match h.windows.of_layer(il, &Pattern::Every(0)) {
            _ if !attends => Default::default(),
            Some(window) => h.windowed_layer(b, rope, window),
            None => h.attention_layer(b, rope),
        };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let (mut mixed, output) = if attends {
            let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
            (blocks::attention(b, h, normed, rope)?, output)
        } else {
            (convolved(b, h, normed)?, b.linear("shortconv.out_proj", h.n_embd, h.n_embd)?)
        };
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        b.add_linear(x, mixed, output);
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
        blocks::network(b, h, x, normed)?;
    }
    blocks::head_behind(b, h, x, "token_embd_norm.weight")
}

/// `c * conv(b * x)`, up to, not including, the output projection; b, c and x come from one matrix.
fn convolved(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let key = || alloc::format!("{}.shortconv.l_cache", h.architecture).into();
    let n_taps = h.n_taps.ok_or_else(|| Error::MissingKey { key: key() })?;
    let n = h.n_embd;
    let pieces = [("b", 0..n), ("c", n..2 * n), ("x", 2 * n..3 * n)];
    let [before, behind, x] = b.pieces(x, "shortconv.in_proj", 3 * n, pieces)?;
    b.mul(x, before);
    let y = b.conv(x, "shortconv.conv", n_taps, false)?;
    b.mul(y, behind);
    Ok(y)
}
