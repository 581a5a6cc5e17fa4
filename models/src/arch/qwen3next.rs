//! Qwen 3 Next (Qwen team, 2025, model card Qwen/Qwen3-Next-80B-A3B-Instruct): gated delta rule and
//! gated attention, with a mixture of experts.
//!
//! Learning rate and decay of the delta rule come from one matrix (`ssm_ba`). Beside the experts
//! stands one that all tokens go through, behind a gate of its own (`ffn_*_shexp`); layers without
//! a router have a plain network.

use super::{
    decoder::Decoder,
    delta_net::{self, Gates},
};
use crate::{
    error::Error,
    graph::{Builder, Columns, Linear, Sharing, Value},
    hparams::{Hparams, Ssm},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        mixer: |b, h, _, x| delta_net::mixer(b, h, x, Sharing::Neighbours, gates),
        ..delta_net::DECODER
    };
    decoder.build(b, h)
}

/// One matrix has both, for each head of keys first the learning rates and then the decays.
fn gates(b: &mut Builder<'_, '_>, ssm: &Ssm, x: Value) -> Result<Gates, Error> {
    let both = b.linear(x, Linear::new("ssm_ba", 2 * ssm.dt_rank))?;
    let n = ssm.dt_rank / ssm.n_group;
    let half = |first| Columns { first, n, group: 2 * n };
    Ok(Gates { beta: b.columns("beta", both, half(0)), alpha: b.columns("alpha", both, half(n)) })
}
