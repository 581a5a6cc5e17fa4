//! DeepSeek V2, V3 and R1, and the models with their layout (DeepSeek-AI, 2024, arXiv 2405.04434
//! and 2412.19437), also Mistral Small 4 (Mistral AI, 2026).
//!
//! Latent attention; experts behind a few layers with one network, chosen with a bias and by
//! groups. Stretched rotations (YaRN) leave queries and keys as long as they were; in their place
//! attention scores have a factor, by `rope.scaling.yarn_log_multiplier`.

use super::{blocks, decoder::Decoder, mla, rope};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::{Hparams, LayerHparams, RopeScaling},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| {
            let scaling = match h.rope.scaling {
                RopeScaling::Yarn { factor, n_ctx_orig, attn_factor } => {
                    let attn_factor = attn_factor / (1.0 + 0.1 * libm::logf(factor));
                    RopeScaling::Yarn { factor, n_ctx_orig, attn_factor }
                }
                scaling => scaling,
            };
            rope::declare(b, layer, pairs, scaling, &|_| false).map(Some)
        },
        cells: mla::cells,
        scores,
        attention: mla::attention,
        feed_forward: blocks::gated_network_plain,
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}

fn scores(h: &Hparams, layer: &LayerHparams) -> Scores {
    let d_k = h.mla.map_or(layer.d_k, |mla| mla.d_k);
    let factor = match h.rope.scaling {
        RopeScaling::Yarn { factor, attn_factor, .. } => {
            attn_factor * (1.0 + h.rope.yarn_log_multiplier * libm::logf(factor))
        }
        _ => 1.0,
    };
    Scores::scaled(factor * factor / libm::sqrtf(d_k as f32))
}
