//! Kimi Linear (Kimi team, 2025, arXiv 2510.26692): Kimi delta attention in most layers, latent
//! attention in the others, and experts behind a few layers with one network.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a recurrence, with heads of
//! `kda.head_dim`. Queries, keys and values have a short convolution each (`ssm_conv1d_q`, `_k`,
//! `_v`); the decay of each key (`ssm_f_*`) and the gate behind the recurrence (`ssm_g_*`) are made
//! by networks of low rank. Attention knows no positions: the recurrences carry the order.

use super::{decoder::Decoder, mla};
use crate::{
    error::Error,
    graph::{Activation, Builder, KdaInputs, KdaSizes, Linear, LowRank, Norm, Scores, Value},
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |_, _, _, _| Ok(None),
        cells: mla::cells,
        scores: |h, layer| {
            let d_k = h.mla.map_or(layer.d_k, |mla| mla.d_k);
            Scores::scaled(1.0 / libm::sqrtf(d_k as f32))
        },
        attention: mla::attention,
        mixer: |b, h, layer, x| Ok((delta(b, h, layer, x)?, "attn_output")),
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}

/// Return the recurrence up to, not including, its output projection.
fn delta(b: &mut Builder<'_, '_>, h: &Hparams, layer: &LayerHparams, x: Value) -> Result<Value, Error> {
    let kda = h.kda(layer)?;
    let (n_head, d, width) = (layer.n_head, kda.d_head, layer.n_head * kda.d_head);
    let low_rank = |b: &mut Builder<'_, '_>, down, up| {
        b.low_rank(x, LowRank { down, up, activation: Activation::Identity, n_rows: width })
    };
    let names = ["attn_q", "attn_k", "attn_v"];
    let [q, k, v] = b.linears(x, names.map(|name| Linear::new(name, width)))?;
    let q = b.conv(q, "ssm_conv1d_q", kda.d_conv, true)?;
    let k = b.conv(k, "ssm_conv1d_k", kda.d_conv, true)?;
    let v = b.conv(v, "ssm_conv1d_v", kda.d_conv, true)?;
    let beta = b.linear(x, Linear::new("ssm_beta", n_head))?;
    let alpha = low_rank(b, "ssm_f_a", "ssm_f_b")?;
    let sizes = KdaSizes { n_head, d_k: d, d_v: d, eps: h.norm_rms_eps };
    let y = b.kda(KdaInputs { q, k, v, beta, alpha }, sizes)?;
    b.norm_in_place(y, Norm::heads("ssm_norm", h.norm_rms_eps, d))?;
    let gate = low_rank(b, "ssm_g_a", "ssm_g_b")?;
    Ok(b.gate(Activation::Sigmoid, gate, y))
}
