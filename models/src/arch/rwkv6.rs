//! RWKV 6 (Peng et al., 2024, arXiv 2404.05892): how far a token looks back, and how fast its state decays, depends on it.

use super::{
    Arch,
    rwkv::{self, HEAD_EPS, Halves},
};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, Mix, Value, WeightRow, Wkv6Params},
    hparams::{Hparams, Wkv},
};

pub(super) static ARCH: Arch = Arch { name: "rwkv6", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    rwkv::build(b, h, Halves { time_mix: &mut time_mix, channel_mix })
}

/// The inputs of decay, keys, values, receptance and gate: each a mixture of the token and the one before, by a weight
/// and by what a small network makes of a first mixture.
fn inputs(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, before: Value) -> Result<[Value; 5], Error> {
    const FUSED: &str = "time_mix_lerp_fused.weight";
    const LERPS: [&str; 5] = [
        "time_mix_lerp_w.weight",
        "time_mix_lerp_k.weight",
        "time_mix_lerp_v.weight",
        "time_mix_lerp_r.weight",
        "time_mix_lerp_g.weight",
    ];
    let row = b.vector_row("time_mix_lerp_x.weight", x, 1, 0)?;
    let mixed = b.lerp("xx", x, before, Mix::Weight(row));
    let rank = b.n_rows("time_mix_w1.weight").unwrap_or(0) / 5;
    let pieces: [_; 5] = core::array::from_fn(|i| ("mix", i * rank..(i + 1) * rank));
    let pieces = b.pieces(mixed, "time_mix_w1", 5 * rank, pieces)?;
    let up: [Linear; 5] = b.stacked("time_mix_w2.weight", h.n_embd, rank)?;
    let mut inputs = pieces;
    for (i, (input, up)) in inputs.iter_mut().zip(up).enumerate() {
        b.activate(Activation::Tanh, *input);
        let [by] = b.linears(*input, [up], ["mix"]);
        let row: WeightRow = match b.has(FUSED) {
            true => b.vector_row(FUSED, x, 5, i)?,
            false => b.vector_row(LERPS[i], x, 1, 0)?,
        };
        *input = b.lerp(["xw", "xk", "xv", "xr", "xg"][i], x, before, Mix::Both(row, by));
    }
    Ok(inputs)
}

fn time_mix(b: &mut Builder<'_, '_>, h: &Hparams, wkv: Wkv, [x, before]: [Value; 2]) -> Result<Value, Error> {
    let n_embd = h.n_embd;
    let [xw, xk, xv, xr, xg] = inputs(b, h, x, before)?;
    let product = |b: &mut Builder<'_, '_>, x, tensor, name| -> Result<Value, Error> {
        let matrix = b.linear(tensor, n_embd, n_embd)?;
        let [y] = b.linears(x, [matrix], [name]);
        Ok(y)
    };
    let r = product(b, xr, "time_mix_receptance", "r")?;
    let k = product(b, xk, "time_mix_key", "k")?;
    let v = product(b, xv, "time_mix_value", "v")?;
    let gate = product(b, xg, "time_mix_gate", "gate")?;
    let w = b.low_rank(xw, ["time_mix_decay_w1", "time_mix_decay_w2"], Activation::Tanh, n_embd)?;
    b.bias(w, "time_mix_decay.weight")?;
    let params = Wkv6Params {
        n_head: wkv.n_head,
        d_head: wkv.d_head,
        first: b.vector("time_mix_first.weight", n_embd)?,
        norm: [b.vector("time_mix_ln.weight", n_embd)?, b.vector("time_mix_ln.bias", n_embd)?],
        eps: HEAD_EPS,
    };
    let y = b.wkv6([r, w, k, v], params);
    Ok(b.gate(Activation::Silu, gate, y))
}

/// `sigmoid(receptance(x)) * value(relu(key(x))^2)`.
fn channel_mix(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    residual: Value,
    [x, before]: [Value; 2],
) -> Result<(), Error> {
    let mixed = |b: &mut Builder<'_, '_>, name, weight| -> Result<Value, Error> {
        let row = b.vector_row(weight, x, 1, 0)?;
        Ok(b.lerp(name, x, before, Mix::Weight(row)))
    };
    let xk = mixed(b, "xk", "channel_mix_lerp_k.weight")?;
    let xr = mixed(b, "xr", "channel_mix_lerp_r.weight")?;
    let key = b.linear("channel_mix_key", h.n_ff, h.n_embd)?;
    let [k] = b.linears(xk, [key], ["k"]);
    b.activate(Activation::SquaredRelu, k);
    let value = b.linear("channel_mix_value", h.n_embd, h.n_ff)?;
    let [y] = b.linears(k, [value], ["y"]);
    let receptance = b.linear("channel_mix_receptance", h.n_embd, h.n_embd)?;
    let [r] = b.linears(xr, [receptance], ["r"]);
    b.gate(Activation::Sigmoid, r, y);
    b.add(residual, y);
    Ok(())
}
