//! Mamba (Gu and Dao, 2023, arXiv 2312.00752): in every layer a selective state-space mixer. Falcon-Mamba (Zuo et al., 2024,
//! arXiv 2410.05355) normalises what the selection is made of.

use super::{Arch, blocks};
use crate::{
    error::Error,
    graph::{Activation, Builder, Value},
    hparams::Hparams,
};
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "mamba", build };

/// Describes a mixer up to, not including, its output projection.
pub(super) type Mixer = fn(&mut Builder<'_, '_>, &Hparams, Value) -> Result<Value, Error>;

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    stack(b, h, mixer)
}

/// The whole graph of a model that has in each layer nothing but a mixer behind a norm.
pub(super) fn stack(b: &mut Builder<'_, '_>, h: &Hparams, mixer: Mixer) -> Result<(), Error> {
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        b.layer(LayerSpec::default());
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let mut mixed = mixer(b, h, normed)?;
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        let output = b.linear("ssm_out", h.n_embd, h.ssm()?.d_inner)?;
        b.add_linear(x, mixed, output);
    }
    blocks::head(b, h, x)
}

/// The selective mixer up to, not including, its output projection.
pub(super) fn mixer(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let ssm = h.ssm()?;
    let (n, dt, bc) = (ssm.d_inner, ssm.dt_rank, ssm.dt_rank + ssm.d_state);
    let [x, z] = b.pieces(x, "ssm_in", 2 * n, [("x", 0..n), ("z", n..2 * n)])?;
    let x = b.conv(x, "ssm_conv1d", ssm.d_conv, true)?;
    let n_rows = bc + ssm.d_state;
    let selected = b.pieces(x, "ssm_x", n_rows, [("dt", 0..dt), ("b", dt..bc), ("c", bc..n_rows)])?;
    let widths = [ssm.dt_rank, ssm.d_state, ssm.d_state];
    let norms = ["ssm_dt_norm.weight", "ssm_b_norm.weight", "ssm_c_norm.weight"];
    for ((x, width), norm) in selected.into_iter().zip(widths).zip(norms) {
        if b.has(norm) {
            b.group_norm(x, norm, width, width, h.norm_rms_eps)?;
        } else if ssm.dt_b_c_rms {
            b.plain_norm(x, h.norm_rms_eps);
        }
    }
    let [dt, b_row, c_row] = selected;
    let steps = b.linear("ssm_dt", n, ssm.dt_rank)?;
    let [dt] = b.linears(dt, [steps], ["dt"]);
    let y = b.selective(x, dt, [b_row, c_row])?;
    Ok(b.gate(Activation::Silu, z, y))
}
