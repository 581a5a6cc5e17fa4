//! MiMo V2 (Xiaomi, 2025, the model card of MiMo-V2-Flash).
//!
//! The file lists the layers that have a window; heads differ by layer, and layers with a window
//! have sinks. What attention returns has a factor (`attention.value_scale`). Experts are chosen by
//! sigmoids with a bias.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, Gating, Routing},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        attention: |b, spec, x| {
            let y = blocks::attention(b, spec, x)?;
            spec.h.value_scale.into_iter().for_each(|factor| b.scale(y, factor));
            Ok(y)
        },
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::Sigmoid, ..Routing::RENORMALISED };
            blocks::network_or_experts(b, h, layer, x, branch, routing)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
