//! Gemma 3 (Gemma Team, 2025, arXiv 2503.19786), and EmbeddingGemma (Vera et al., 2025, arXiv
//! 2509.20354), which is built alike.
//!
//! Five layers with a window, then one without. Each kind has a rotation of its own: layers without
//! a window by `rope.freq_base`, stretched for longer contexts (`rope.scaling.*`), the others by
//! `rope.freq_base_swa`, never stretched. Queries and keys are normalised head by head; attention
//! scores have no cap.

use super::{decoder::Decoder, gemma, rope};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::{Hparams, LayerHparams, Pattern},
};
use backstitch_kv::Window;

/// The base of windowed layers' frequencies, unless the file says otherwise.
const FREQ_BASE_SWA: f32 = 10_000.0;
/// Layers of the largest member.
const N_LAYER: usize = 62;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    decoder(h).build(b, h)
}

/// Describe EmbeddingGemma, whose windows reach half as far to both sides.
pub(super) fn build_encoder(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { is_encoder: true, window: Window::Symmetric, ..decoder(h) }.build(b, h)
}

fn decoder(h: &Hparams) -> Decoder {
    Decoder {
        pattern: Pattern::Every(6),
        rope: |b, h, layer, pairs| {
            if layer.window.is_none() {
                return rope::of_layer(b, h, layer, pairs).map(Some);
            }
            let freq_base = if h.windows.has_freq_base { layer.freq_base } else { FREQ_BASE_SWA };
            rope::unstretched(b, &LayerHparams { freq_base, ..*layer }, pairs).map(Some)
        },
        scores: |h, layer| Scores::scaled(gemma::attention_scale(h, layer, N_LAYER)),
        ..gemma::normed(h)
    }
}
