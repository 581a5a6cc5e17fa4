//! Falcon-H1 (Zuo et al., 2025, arXiv 2507.22448): attention and a Mamba-2 mixer side by side in
//! every layer.
//!
//! Both read the same normalised stream, and both results are added to the residual stream. So
//! every layer has a KV cache and a recurrent state. Keys of both kinds matter: `attention.*` and
//! `ssm.*`. The factors of the paper are folded into the weights of GGUF files. Files lack the
//! suffix `.weight` of `ffn_norm`.

use super::{
    blocks,
    decoder::{AttentionSpec, Branch, Decoder},
    mamba2, rope,
};
use crate::{
    error::Error,
    graph::{Builder, Norm},
    hparams::Hparams,
};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let rope = Some(rope::of_layer(b, h, &layer, Pairs::Split)?);
        b.layer(Some(blocks::cells(&layer, rope)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let spec = AttentionSpec { h, layer: &layer, choices: &Decoder::SPLIT, rope };
        let attn = blocks::attention(b, spec, normed)?;
        let mixed = mamba2::mixer(b, h, normed)?;
        let [attn, mixed, residual] = b.last_outputs(layer.is_last, [attn, mixed, x]);
        x = residual;
        b.add_linear(x, attn, "attn_output")?;
        b.add_linear(x, mixed, "ssm_out")?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        let branch = Branch::to(x);
        blocks::gated_network(b, h, &layer, normed, branch)?;
        b.end_layer(x);
    }
    blocks::head(b, h, x)
}
