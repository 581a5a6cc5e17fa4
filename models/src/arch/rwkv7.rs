//! RWKV 7 (Peng et al., 2025, arXiv 2503.14456): a state that unlearns one key and learns another
//! with every token.
//!
//! Learning rate, decay, and the share of the first layer's values in later ones are made by
//! networks of low rank (`time_mix_a*`, `_w*`, `_v*`). The shares of the token before are constant
//! and in one tensor, `time_mix_lerp_fused`: six rows where the file has a gate (`time_mix_g*`),
//! else five.

use super::rwkv::{self, Halves, Shifted};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, LowRank, Mix, Value, WeightRow, Wkv7Inputs, WkvSizes},
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    // The values of the first layer, to which all later ones come back.
    let mut first = None;
    let mut time_mix = |b: &mut Builder<'_, '_>, h: &Hparams, sizes: WkvSizes, x: Shifted| {
        time_mix(b, h, sizes, x, &mut first)
    };
    rwkv::build(b, h, Halves { time_mix: &mut time_mix, channel_mix })
}

/// Return the recurrence up to, not including, its output projection. `first` holds the values of
/// the first layer, once it was described.
pub(super) fn time_mix(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    sizes: WkvSizes,
    Shifted { x, before }: Shifted,
    first: &mut Option<Value>,
) -> Result<Value, Error> {
    let n_rows = h.n_embd;
    let is_gated = b.has("time_mix_g1.weight") && b.has("time_mix_g2.weight");
    let n_mixes = if is_gated { 6 } else { 5 };
    let mixed = |b: &mut Builder<'_, '_>, name, row| {
        let row = WeightRow { name: "time_mix_lerp_fused.weight", n_rows: n_mixes, row };
        b.lerp(name, x, before, Mix::Weight(row))
    };
    let low_rank = |b: &mut Builder<'_, '_>, x, down, up, activation| {
        b.low_rank(x, LowRank { down, up, activation, n_rows })
    };
    let (xr, xw, xk) = (mixed(b, "xr", 0)?, mixed(b, "xw", 1)?, mixed(b, "xk", 2)?);
    let (xv, xa) = (mixed(b, "xv", 3)?, mixed(b, "xa", 4)?);
    let r = b.linear(xr, Linear::new("time_mix_receptance", n_rows))?;
    let w = low_rank(b, xw, "time_mix_w1", "time_mix_w2", Activation::Tanh)?;
    b.bias(w, "time_mix_w0.weight")?;
    let k = b.linear(xk, Linear::new("time_mix_key", n_rows))?;
    let mut v = b.linear(xv, Linear::new("time_mix_value", n_rows))?;
    if let Some(first) = *first {
        let share = low_rank(b, xv, "time_mix_v1", "time_mix_v2", Activation::Identity)?;
        b.bias(share, "time_mix_v0.weight")?;
        b.activate(Activation::Sigmoid, share);
        v = b.lerp("v", v, first, Mix::Value(share))?;
    } else {
        *first = Some(v);
    }
    let a = low_rank(b, xa, "time_mix_a1", "time_mix_a2", Activation::Identity)?;
    b.bias(a, "time_mix_a0.weight")?;
    let y = b.wkv7(Wkv7Inputs { r, w, k, v, a }, sizes)?;
    if !is_gated {
        return Ok(y);
    }
    let xg = mixed(b, "xg", 5)?;
    let gate = low_rank(b, xg, "time_mix_g1", "time_mix_g2", Activation::Sigmoid)?;
    Ok(b.gate(Activation::Identity, gate, y))
}

/// Add `value(relu(key(x))^2)` to `residual`.
fn channel_mix(
    b: &mut Builder<'_, '_>,
    _h: &Hparams,
    layer: &LayerHparams,
    residual: Value,
    Shifted { x, before }: Shifted,
) -> Result<(), Error> {
    let row = WeightRow::only("channel_mix_lerp_k.weight");
    let xk = b.lerp("xk", x, before, Mix::Weight(row))?;
    let k = b.linear(xk, Linear::new("channel_mix_key", layer.n_ff))?;
    b.activate(Activation::SquaredRelu, k);
    b.add_linear(residual, k, "channel_mix_value")
}
