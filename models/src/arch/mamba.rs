//! Mamba (Gu and Dao, 2023, arXiv 2312.00752) and Falcon-Mamba (Zuo et al., 2024, arXiv
//! 2410.05355).
//!
//! Every layer is a selective state-space mixer behind a norm, without attention and without a
//! feed-forward network. The state of a layer is the last inputs of its convolution and `d_state`
//! numbers a channel (`ssm.*`). Falcon-Mamba normalises time steps, B and C without weights
//! (`ssm.dt_b_c_rms`); Jamba, which has mixers too, does so with weights.

use super::blocks;
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, Norm, SelectiveInputs, Value},
    hparams::Hparams,
};

/// Describes a mixer up to, not including, its output projection.
pub(super) type Mixer = fn(&mut Builder<'_, '_>, &Hparams, Value) -> Result<Value, Error>;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    stack(b, h, mixer)
}

/// Describe a model that has in each layer nothing but a mixer behind a norm.
pub(super) fn stack(b: &mut Builder<'_, '_>, h: &Hparams, mixer: Mixer) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        b.layer(None);
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let mixed = mixer(b, h, normed)?;
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, "ssm_out")?;
        b.end_layer(x);
    }
    blocks::head(b, h, x)
}

/// Return the selective mixer up to, not including, its output projection.
pub(super) fn mixer(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let ssm = h.ssm()?;
    let (n, rank, d_state) = (ssm.d_inner, ssm.dt_rank, ssm.d_state);
    let [x, z] = b.linears(x, Linear::fused("ssm_in", [("x", n), ("z", n)]))?;
    let x = b.conv(x, "ssm_conv1d", ssm.d_conv, true)?;
    let selected = Linear::fused("ssm_x", [("dt", rank), ("b", d_state), ("c", d_state)]);
    let selected = b.linears(x, selected)?;
    for (value, norm) in selected.into_iter().zip(["ssm_dt_norm", "ssm_b_norm", "ssm_c_norm"]) {
        let is_there = b.norm_if_there(value, Norm::rms(norm, h.norm_rms_eps))?;
        if !is_there && ssm.dt_b_c_rms {
            b.plain_norm(value, h.norm_rms_eps);
        }
    }
    let [dt, b_row, c_row] = selected;
    let dt = b.linear(dt, Linear::new("ssm_dt", n))?;
    let y = b.selective(SelectiveInputs { x, dt, b: b_row, c: c_row })?;
    Ok(b.gate(Activation::Silu, z, y))
}
