//! Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060): in every layer a state-space mixer whose heads decay as a whole.

use super::{Arch, mamba};
use crate::{
    error::Error,
    graph::{Activation, Builder, SsdParams, Value},
    hparams::Hparams,
};

pub(super) static ARCH: Arch = Arch { name: "mamba2", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    mamba::stack(b, h, mixer)
}

/// The mixer up to, not including, its output projection.
pub(super) fn mixer(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let ssm = h.ssm_heads()?;
    let (z, xbc) = (ssm.d_inner, ssm.d_inner + ssm.n_channels());
    let n_rows = xbc + ssm.dt_rank;
    let pieces = [("z", 0..z), ("xbc", z..xbc), ("dt", xbc..n_rows)];
    let [z, xbc, dt] = b.pieces(x, "ssm_in", n_rows, pieces)?;
    let xbc = b.conv(xbc, "ssm_conv1d", ssm.d_conv, true)?;
    let params = SsdParams {
        n_head: ssm.dt_rank,
        d_head: ssm.d_inner / ssm.dt_rank,
        n_group: ssm.n_group,
        d_state: ssm.d_state,
        dt_bias: b.vector("ssm_dt.bias", ssm.dt_rank)?,
        a: b.vector("ssm_a", ssm.dt_rank)?,
        d: b.vector("ssm_d", ssm.dt_rank)?,
    };
    let y = b.ssd(xbc, dt, params);
    let y = b.gate(Activation::Silu, z, y);
    if b.has("ssm_norm.weight") {
        b.group_norm(y, "ssm_norm.weight", ssm.d_inner, ssm.d_inner / ssm.n_group, h.norm_rms_eps)?;
    }
    Ok(y)
}
