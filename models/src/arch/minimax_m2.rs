//! MiniMax M2 (MiniMax, 2025, the model card of MiniMax-M2).
//!
//! Queries and keys are normalised as wholes, and part of each head rotates. Sigmoids with a bias
//! choose the experts of every layer; their weights are renormalised.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, Gating, Routing},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        head_norm: |h, _, name| blocks::rms_norm(h, name),
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::Sigmoid, ..Routing::RENORMALISED };
            blocks::network_or_experts(b, h, layer, x, branch, routing)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
