//! RWKV 6 (Peng et al., 2024, arXiv 2404.05892).
//!
//! Both the share of the token before in each input and the decay of the state depend on the token.
//! The shares are made by a small network of low rank (`time_mix_w1`, `time_mix_w2`) over a first
//! mixture; some files have the five constant shares in one tensor (`time_mix_lerp_fused`).

use super::rwkv::{self, Halves, Shifted};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, LowRank, Mix, Value, WeightRow, Wkv6Inputs, WkvSizes},
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    rwkv::build(b, h, Halves { time_mix: &mut time_mix, channel_mix })
}

/// Return the inputs of decay, keys, values, receptance and gate: each a mixture of the token and
/// the one before, by a weight and by the result of a small network over a first mixture.
fn inputs(b: &mut Builder<'_, '_>, h: &Hparams, Shifted { x, before }: Shifted) -> Result<[Value; 5], Error> {
    const FUSED: &str = "time_mix_lerp_fused.weight";
    const LERPS: [(&str, &str); 5] = [
        ("xw", "time_mix_lerp_w.weight"),
        ("xk", "time_mix_lerp_k.weight"),
        ("xv", "time_mix_lerp_v.weight"),
        ("xr", "time_mix_lerp_r.weight"),
        ("xg", "time_mix_lerp_g.weight"),
    ];
    let row = WeightRow::only("time_mix_lerp_x.weight");
    let mixed = b.lerp("xx", x, before, Mix::Weight(row))?;
    let rank = b.rows_of("time_mix_w1.weight")? / 5;
    let mut inputs = b.linears(mixed, Linear::fused("time_mix_w1", [("mix", rank); 5]))?;
    for (i, (input, (name, lerp))) in inputs.iter_mut().zip(LERPS).enumerate() {
        b.activate(Activation::Tanh, *input);
        let by = b.linear(*input, Linear::stacked("time_mix_w2", h.n_embd, i, 5))?;
        let row = match b.has(FUSED) {
            true => WeightRow { name: FUSED, n_rows: 5, row: i },
            false => WeightRow::only(lerp),
        };
        *input = b.lerp(name, x, before, Mix::Both(row, by))?;
    }
    Ok(inputs)
}

/// The inputs of the recurrence, and of the gate behind it.
pub(super) struct Projected {
    pub(super) r: Value,
    pub(super) w: Value,
    pub(super) k: Value,
    pub(super) v: Value,
    pub(super) gate: Value,
}

/// Return the inputs of the recurrence, with keys and values of `n_kv` columns.
pub(super) fn projected(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    x: Shifted,
    n_kv: usize,
) -> Result<Projected, Error> {
    let n_embd = h.n_embd;
    let [xw, xk, xv, xr, xg] = inputs(b, h, x)?;
    let r = b.linear(xr, Linear::new("time_mix_receptance", n_embd))?;
    let k = b.linear(xk, Linear::new("time_mix_key", n_kv))?;
    let v = b.linear(xv, Linear::new("time_mix_value", n_kv))?;
    let gate = b.linear(xg, Linear::new("time_mix_gate", n_embd))?;
    let (down, up) = ("time_mix_decay_w1", "time_mix_decay_w2");
    let w = b.low_rank(xw, LowRank { down, up, activation: Activation::Tanh, n_rows: n_embd })?;
    b.bias(w, "time_mix_decay.weight")?;
    Ok(Projected { r, w, k, v, gate })
}

fn time_mix(b: &mut Builder<'_, '_>, h: &Hparams, sizes: WkvSizes, x: Shifted) -> Result<Value, Error> {
    let Projected { r, w, k, v, gate } = projected(b, h, x, h.n_embd)?;
    let y = b.wkv6(Wkv6Inputs { r, w, k, v }, sizes)?;
    Ok(b.gate(Activation::Silu, gate, y))
}

/// Add `sigmoid(receptance(x)) * value(relu(key(x))^2)` to `residual`.
fn channel_mix(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    residual: Value,
    Shifted { x, before }: Shifted,
) -> Result<(), Error> {
    let key = WeightRow::only("channel_mix_lerp_k.weight");
    let xk = b.lerp("xk", x, before, Mix::Weight(key))?;
    let receptance = WeightRow::only("channel_mix_lerp_r.weight");
    let xr = b.lerp("xr", x, before, Mix::Weight(receptance))?;
    let k = b.linear(xk, Linear::new("channel_mix_key", layer.n_ff))?;
    b.activate(Activation::SquaredRelu, k);
    let y = b.linear(k, Linear::new("channel_mix_value", h.n_embd))?;
    let r = b.linear(xr, Linear::new("channel_mix_receptance", h.n_embd))?;
    b.gate(Activation::Sigmoid, r, y);
    b.add(residual, y);
    Ok(())
}
