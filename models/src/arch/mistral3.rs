//! Ministral 3 and Mistral Small of 2025 (Mistral AI, the model cards of Ministral-3).
//!
//! Llama, whose queries grow with the logarithm of their position beyond the context of the
//! training (`attention.temperature_scale`). Of the factor of a stretched rotation (YaRN), the part
//! that `rope.scaling.yarn_log_multiplier` states is taken away.

use super::{decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, RopeParams, RopeScaling},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| {
            let taken = match h.rope.scaling {
                RopeScaling::Yarn { factor, .. } => {
                    1.0 + 0.1 * h.rope.yarn_log_multiplier * libm::logf(factor)
                }
                _ => 1.0,
            };
            let params = RopeParams { attn_factor: h.rope.attn_factor / taken, ..h.rope };
            rope::declare(b, layer, pairs, params, &|_| false).map(Some)
        },
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
