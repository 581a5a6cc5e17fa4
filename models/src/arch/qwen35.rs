//! Qwen 3.5 (Qwen team, 2026, the Qwen 3.5 model cards): gated delta rule and gated attention,
//! with dense networks.
//!
//! Learning rate and decay of the delta rule have a matrix each (`ssm_beta`, `ssm_alpha`).
//! Positions have axes, time, height and width (`rope.dimension_sections`).

use super::{
    decoder::Decoder,
    delta_net::{self, Inputs},
    rope,
};
use crate::{
    error::Error,
    graph::{Builder, DeltaInputs, Linear, Sharing, Value},
    hparams::{Hparams, Ssm},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: rope::interleaved,
        mixer: |b, h, _, x| delta_net::mixer(b, h, x, Sharing::Strided, inputs),
        ..delta_net::DECODER
    };
    decoder.build(b, h)
}

fn inputs(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<Inputs, Error> {
    let [qkv, z] = delta_net::qkv_and_gate(b, ssm, x)?;
    let linears = [Linear::new("ssm_beta", ssm.dt_rank), Linear::new("ssm_alpha", ssm.dt_rank)];
    let [beta, alpha] = b.linears(x, linears)?;
    Ok(Inputs { delta: DeltaInputs { qkv, beta, alpha }, z })
}
