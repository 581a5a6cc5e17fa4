//! RWKV 7 (Peng et al., 2025, arXiv 2503.14456): a state that unlearns one key and learns another with every token.

use super::{
    Arch,
    rwkv::{self, HEAD_EPS, Halves},
};
use crate::{
    error::Error,
    graph::{Activation, Builder, Mix, Value, Wkv7Params},
    hparams::{Hparams, Wkv},
};

pub(super) static ARCH: Arch = Arch { name: "rwkv7", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    // The values of the first layer, which all later ones come back to.
    let mut first = None;
    let mut time_mix =
        |b: &mut Builder<'_, '_>, h: &Hparams, wkv: Wkv, x: [Value; 2]| time_mix(b, h, wkv, x, &mut first);
    rwkv::build(b, h, Halves { time_mix: &mut time_mix, channel_mix })
}

fn time_mix(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    wkv: Wkv,
    [x, before]: [Value; 2],
    first: &mut Option<Value>,
) -> Result<Value, Error> {
    let n_embd = h.n_embd;
    let is_gated = b.has("time_mix_g1.weight") && b.has("time_mix_g2.weight");
    let n_mixes = if is_gated { 6 } else { 5 };
    let mixed = |b: &mut Builder<'_, '_>, name, row| -> Result<Value, Error> {
        let row = b.vector_row("time_mix_lerp_fused.weight", x, n_mixes, row)?;
        Ok(b.lerp(name, x, before, Mix::Weight(row)))
    };
    let (xr, xw, xk) = (mixed(b, "xr", 0)?, mixed(b, "xw", 1)?, mixed(b, "xk", 2)?);
    let (xv, xa) = (mixed(b, "xv", 3)?, mixed(b, "xa", 4)?);
    let receptance = b.linear("time_mix_receptance", n_embd, n_embd)?;
    let [r] = b.linears(xr, [receptance], ["r"]);
    let w = b.low_rank(xw, ["time_mix_w1", "time_mix_w2"], Activation::Tanh, n_embd)?;
    b.bias(w, "time_mix_w0.weight")?;
    let key = b.linear("time_mix_key", n_embd, n_embd)?;
    let [k] = b.linears(xk, [key], ["k"]);
    let value = b.linear("time_mix_value", n_embd, n_embd)?;
    let [mut v] = b.linears(xv, [value], ["v"]);
    if let Some(first) = *first {
        let share = b.low_rank(xv, ["time_mix_v1", "time_mix_v2"], Activation::Identity, n_embd)?;
        b.bias(share, "time_mix_v0.weight")?;
        b.activate(Activation::Sigmoid, share);
        v = b.lerp("v", v, first, Mix::Value(share));
    } else {
        *first = Some(v);
    }
    let a = b.low_rank(xa, ["time_mix_a1", "time_mix_a2"], Activation::Identity, n_embd)?;
    b.bias(a, "time_mix_a0.weight")?;
    let params = Wkv7Params {
        n_head: wkv.n_head,
        d_head: wkv.d_head,
        k_k: b.vector("time_mix_k_k.weight", n_embd)?,
        k_a: b.vector("time_mix_k_a.weight", n_embd)?,
        r_k: b.vector("time_mix_r_k.weight", n_embd)?,
        norm: [b.vector("time_mix_ln.weight", n_embd)?, b.vector("time_mix_ln.bias", n_embd)?],
        eps: HEAD_EPS,
    };
    let y = b.wkv7([r, w, k, v, a], params);
    if !is_gated {
        return Ok(y);
    }
    let xg = mixed(b, "xg", 5)?;
    let gate = b.low_rank(xg, ["time_mix_g1", "time_mix_g2"], Activation::Sigmoid, n_embd)?;
    Ok(b.gate(Activation::Identity, gate, y))
}

/// `value(relu(key(x))^2)`.
fn channel_mix(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    residual: Value,
    [x, before]: [Value; 2],
) -> Result<(), Error> {
    let row = b.vector_row("channel_mix_lerp_k.weight", x, 1, 0)?;
    let xk = b.lerp("xk", x, before, Mix::Weight(row));
    let key = b.linear("channel_mix_key", h.n_ff, h.n_embd)?;
    let [k] = b.linears(xk, [key], ["k"]);
    b.activate(Activation::SquaredRelu, k);
    let value = b.linear("channel_mix_value", h.n_embd, h.n_ff)?;
    b.add_linear(residual, k, value);
    Ok(())
}
