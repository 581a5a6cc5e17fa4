//! Kimi Linear (Kimi team, 2025, arXiv 2510.26692): Kimi delta attention in most layers, latent
//! attention without positions in the others, and experts.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a layer of delta attention, whose
//! queries, keys and values each go through a short convolution.

use super::{blocks, decoder::Decoder, mla};
use crate::{
    error::Error,
    graph::{
        Activation, Builder, Gating, KdaInputs, KdaSizes, Linear, LowRank, Norm, Routing, Scores, Value,
    },
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
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::Sigmoid, ..Routing::RENORMALISED };
            blocks::network_or_experts(b, h, layer, x, branch, routing)
        },
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}

/// Return Kimi delta attention up to, not including, its output projection.
fn delta(b: &mut Builder<'_, '_>, h: &Hparams, layer: &LayerHparams, x: Value) -> Result<Value, Error> {
    let kda = h.kda.ok_or_else(|| h.missing("kda.head_dim"))?;
    let (n_head, width) = (layer.n_head, layer.n_head * kda.d_head);
    let names = ["attn_q", "attn_k", "attn_v"].map(|name| Linear::new(name, width));
    let mut qkv = b.linears(x, names)?;
    let taps = ["ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"];
    for (value, name) in qkv.iter_mut().zip(taps) {
        *value = b.conv(*value, name, kda.d_conv, true)?;
    }
    let low_rank = |b: &mut Builder<'_, '_>, down, up| {
        b.low_rank(x, LowRank { down, up, activation: Activation::Identity, n_rows: width })
    };
    let alpha = low_rank(b, "ssm_f_a", "ssm_f_b")?;
    let beta = b.linear(x, Linear::new("ssm_beta", n_head))?;
    let [q, k, v] = qkv;
    let sizes = KdaSizes { n_head, d_k: kda.d_head, d_v: kda.d_head, eps: h.norm_rms_eps };
    let y = b.kda(KdaInputs { q, k, v, beta, alpha }, sizes)?;
    b.norm_in_place(y, Norm::heads("ssm_norm", h.norm_rms_eps, kda.d_head))?;
    let gate = low_rank(b, "ssm_g_a", "ssm_g_b")?;
    Ok(b.gate(Activation::Sigmoid, gate, y))
}
