//! DeepSeek V2, V3 and R1, and the models with their layout (DeepSeek-AI, 2024, arXiv 2405.04434
//! and 2412.19437), also Mistral Small 4 (Mistral AI, 2026).
//!
//! Latent attention; experts behind a few layers with one network, chosen with a bias and by
//! groups. Stretched rotations (YaRN) leave queries and keys as long as they were; in their place
//! attention scores have a factor, by `rope.scaling.yarn_log_multiplier`.
//!
//! Files from before `expert_gating_func` existed choose experts by softmax, but for those of
//! GLM-4.7-Flash (Z.ai, 2026), which sizes alone tell apart.

use super::{blocks, decoder::Decoder, mla, rope};
use crate::{
    error::Error,
    graph::{Builder, Gating, Routing, Scores},
    hparams::{Hparams, LayerHparams, RopeParams, RopeScaling},
};

/// Layers of GLM-4.7-Flash, without and with the one that only guesses further tokens.
const N_LAYER_FLASH: [usize; 2] = [47, 48];
/// Tokens of GLM-4.7-Flash.
const N_VOCAB_FLASH: usize = 154_880;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| {
            let own = match h.rope.scaling {
                RopeScaling::Yarn { factor, .. } => 1.0 + 0.1 * libm::logf(factor),
                _ => 1.0,
            };
            let params = RopeParams { attn_factor: h.rope.attn_factor / own, ..h.rope };
            rope::declare(b, layer, pairs, params, &|_| false).map(Some)
        },
        cells: mla::cells,
        scores,
        attention: mla::attention,
        feed_forward: |b, h, layer, x, branch| blocks::network_or_experts(b, h, layer, x, branch, routing(h)),
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}

fn scores(h: &Hparams, layer: &LayerHparams) -> Scores {
    let d_k = h.mla.map_or(layer.d_k, |mla| mla.d_k);
    let factor = match h.rope.scaling {
        RopeScaling::Yarn { factor, .. } => {
            h.rope.attn_factor * (1.0 + h.rope.yarn_log_multiplier * libm::logf(factor))
        }
        _ => h.rope.attn_factor,
    };
    Scores::scaled(factor * factor / libm::sqrtf(d_k as f32))
}

/// Return the choice of experts, as far as the file does not say.
fn routing(h: &Hparams) -> Routing {
    let is_flash = N_LAYER_FLASH.contains(&h.n_layer) && h.n_vocab == N_VOCAB_FLASH;
    Routing { gating: if is_flash { Gating::Sigmoid } else { Gating::Softmax }, ..Routing::PLAIN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, Writer};

    /// Return the choice of experts of a model with some number of layers and tokens.
    fn gating(n_layer: u32, n_vocab: u32, own: Option<u32>) -> Gating {
        let mut writer = Writer::new();
        writer.set("general.architecture", "deepseek2").unwrap();
        let numbers = [
            ("deepseek2.context_length", 128),
            ("deepseek2.embedding_length", 64),
            ("deepseek2.block_count", n_layer),
            ("deepseek2.attention.head_count", 4),
            ("deepseek2.feed_forward_length", 96),
            ("deepseek2.vocab_size", n_vocab),
            ("deepseek2.expert_count", 4),
            ("deepseek2.expert_used_count", 2),
        ];
        let own = own.map(|own| ("deepseek2.expert_gating_func", own));
        for (key, n) in numbers.into_iter().chain(own) {
            writer.set(key, n).unwrap();
        }
        let bytes = writer.to_bytes();
        let h = Hparams::read(&Gguf::parse(&bytes).unwrap()).unwrap();
        blocks::mixture(&h.experts.unwrap(), routing(&h)).routing.gating
    }

    #[test]
    fn files_that_do_not_say_how_experts_are_chosen_are_told_apart_by_their_sizes() {
        for (n_layer, n_vocab, own, wanted) in [
            (47, 154_880, None, Gating::Sigmoid),
            (48, 154_880, None, Gating::Sigmoid),
            (47, 154_880, Some(1), Gating::Softmax),
            (46, 154_880, None, Gating::Softmax),
            (47, 102_400, None, Gating::Softmax),
            (60, 102_400, None, Gating::Softmax),
            (60, 102_400, Some(2), Gating::Sigmoid),
        ] {
            assert_eq!(gating(n_layer, n_vocab, own), wanted, "{n_layer} layers, {n_vocab} tokens, {own:?}");
        }
    }
}
