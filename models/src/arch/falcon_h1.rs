//! Falcon-H1 (Zuo et al., 2025, arXiv 2507.22448): attention and a Mamba-2 mixer side by side in every layer.

use super::{Arch, blocks};
use crate::{
    error::Error,
    graph::{Activation, Builder, SsdParams, Value},
    hparams::{Hparams, Ssm},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "falcon-h1", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let ssm = h.ssm()?;
    let rope = h.rope(b, Pairs::Split)?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        b.layer(LayerSpec { attention: h.attention_layer(b, rope), ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let mut attn = blocks::attention(b, h, normed, rope)?;
        let mut mixed = mamba2(b, h, &ssm, normed)?;
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

/// The Mamba-2 mixer (Dao and Gu, 2024, arXiv 2405.21060) up to, not including, its output projection.
fn mamba2(b: &mut Builder<'_, '_>, h: &Hparams, ssm: &Ssm, x: Value) -> Result<Value, Error> {
    let (z, xbc) = (ssm.d_inner, ssm.d_inner + ssm.n_channels());
    let n_rows = xbc + ssm.n_head;
    let pieces = [("z", 0..z), ("xbc", z..xbc), ("dt", xbc..n_rows)];
    let [z, xbc, dt] = b.pieces(x, "ssm_in", n_rows, pieces)?;
    let xbc = b.conv(xbc, "ssm_conv1d", ssm.d_conv)?;
    let params = SsdParams {
        n_head: ssm.n_head,
        d_head: ssm.d_inner / ssm.n_head,
        n_group: ssm.n_group,
        d_state: ssm.d_state,
        dt_bias: b.vector("ssm_dt.bias", ssm.n_head)?,
        a: b.vector("ssm_a", ssm.n_head)?,
        d: b.vector("ssm_d", ssm.n_head)?,
    };
    let y = b.ssd(xbc, dt, params);
    let y = b.gate(Activation::Silu, z, y);
    if b.has("ssm_norm.weight") {
        b.group_norm(y, "ssm_norm.weight", ssm.d_inner, ssm.d_inner / ssm.n_group, h.norm_rms_eps)?;
    }
    Ok(y)
}
