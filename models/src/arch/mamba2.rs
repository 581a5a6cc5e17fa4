//! Mamba-2 (Dao and Gu, 2024, arXiv 2405.21060).
//!
//! Layers as in Mamba, but the recurrence has heads that decay as a whole (`ssm.time_step_rank` of
//! them), and groups of heads share B and C (`ssm.group_count`). One product gives the gate, the
//! inputs of the convolution and the time steps. The result is normalised by groups where the file
//! has `ssm_norm`.

use super::mamba;
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, Norm, SsdSizes, Value},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    mamba::stack(b, h, mixer)
}

/// Return the mixer up to, not including, its output projection.
pub(super) fn mixer(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let ssm = h.ssm_heads()?;
    let parts = [("z", ssm.d_inner), ("xbc", ssm.n_channels()), ("dt", ssm.dt_rank)];
    let [z, xbc, dt] = b.linears(x, Linear::fused("ssm_in", parts))?;
    let xbc = b.conv(xbc, "ssm_conv1d", ssm.d_conv, true)?;
    let sizes = SsdSizes {
        n_head: ssm.dt_rank,
        d_head: ssm.d_inner / ssm.dt_rank,
        n_group: ssm.n_group,
        d_state: ssm.d_state,
    };
    let y = b.ssd(xbc, dt, sizes)?;
    let y = b.gate(Activation::Silu, z, y);
    b.norm_if_there(y, Norm::groups("ssm_norm", h.norm_rms_eps, ssm.d_inner / ssm.n_group))?;
    Ok(y)
}
