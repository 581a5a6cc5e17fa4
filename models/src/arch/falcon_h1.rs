//! Falcon-H1 (Zuo et al., 2025, arXiv 2507.22448): attention and a Mamba-2 mixer side by side in every layer.

use super::{Arch, blocks, mamba2};
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "falcon-h1", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let ssm = h.ssm_heads()?;
    let rope = h.rope(b, Pairs::Split)?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        b.layer(LayerSpec { attention: h.attention_layer(b, rope), ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let mut attn = blocks::attention(b, h, normed, rope)?;
        let mut mixed = mamba2::mixer(b, h, normed)?;
        if il + 1 == h.n_layer {
            (attn, mixed, x) = (b.outputs(attn), b.outputs(mixed), b.outputs(x));
        }
        let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        let output = b.linear("ssm_out", h.n_embd, ssm.d_inner)?;
        b.add_linear(x, mixed, output);
        // This architecture's norm has no suffix in files.
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm", h.norm_rms_eps)?;
        blocks::feed_forward(b, h, x, normed)?;
    }
    blocks::head(b, h, x)
}
