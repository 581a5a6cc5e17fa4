//! PLaMo 2 (Preferred Networks, 2025, arXiv 2509.04897): mixers between Mamba's two versions, and
//! attention in some layers.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a mixer. A mixer has heads that decay
//! as a whole, as in Mamba-2 (`ssm.time_step_rank` of them; `ssm.group_count` is 0, as all share B
//! and C), but its B, C and time steps are made of the convolved input and normalised, as in Jamba.
//! Queries and keys are normalised by a weight for each head. Norms stand before and behind every
//! branch; some of their names lack the suffix `.weight`.

use super::decoder::Decoder;
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, Linear, Norm, Scores, SelectiveInputs, SsdSizes, Value},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        post_attn_norm: Some("post_attention_norm"),
        post_ffn_norm: Some("post_ffw_norm"),
        head_norm: |h, layer, name| Norm::groups(name, h.norm_rms_eps, layer.d_k),
        scores: |_, layer| Scores::scaled(1.0 / libm::sqrtf(layer.d_v as f32)),
        mixer: |b, h, _, x| Ok((mixer(b, h, x)?, "ssm_out")),
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}

/// Return a mixer up to, not including, its output projection. The gate and the input of each head
/// lie side by side.
fn mixer(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let ssm = h.ssm_heads()?;
    let (n_head, d_state, d_head) = (ssm.dt_rank, ssm.d_state, ssm.d_inner / ssm.dt_rank);
    let both = b.linear(x, Linear::new("ssm_in", 2 * ssm.d_inner))?;
    let half = |first| Columns { first, n: d_head, group: 2 * d_head };
    let (z, x) = (b.columns("z", both, half(0)), b.columns("x", both, half(d_head)));
    let x = b.conv(x, "ssm_conv1d", ssm.d_conv, true)?;
    // The width of time steps before their projection is no number of the file.
    let n_dt = (h.n_embd / 16).max(64);
    let parts = [("b", d_state), ("c", d_state), ("dt", n_dt)];
    let [b_row, c_row, dt] = b.linears(x, Linear::fused("ssm_x", parts))?;
    for (value, name) in [(b_row, "ssm_b_norm"), (c_row, "ssm_c_norm"), (dt, "ssm_dt_norm")] {
        b.norm_in_place(value, Norm::rms(name, h.norm_rms_eps))?;
    }
    let dt = b.unbiased(dt, Linear::new("ssm_dt", n_head))?;
    let sizes = SsdSizes { n_head, d_head, n_group: ssm.n_group, d_state };
    let y = b.ssd_apart(SelectiveInputs { x, dt, b: b_row, c: c_row }, sizes)?;
    Ok(b.gate(Activation::Silu, z, y))
}
