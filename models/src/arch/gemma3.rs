//! Gemma 3 (Gemma Team, 2025, arXiv 2503.19786).
//!
//! Five layers with a window, then one without. Each kind has a rotation of its own: layers without
//! a window by `rope.freq_base`, stretched for longer contexts (`rope.scaling.*`), the others by
//! `rope.freq_base_swa`, never stretched. Queries and keys are normalised head by head; attention
//! scores have no cap.

use super::{
    gemma::{self, Member},
    rope,
};
use crate::{
    error::Error,
    graph::{Builder, RopeId},
    hparams::{Hparams, LayerHparams, Pattern, RopeScaling},
};
use backstitch_core::rope::Pairs;

/// The base of windowed layers' frequencies, unless the file says otherwise.
const FREQ_BASE_SWA: f32 = 10_000.0;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let member = Member {
        n_layer_scaled_by_embd: 62,
        pattern: Pattern::Every(6),
        rope: &rotation,
        attn_soft_cap: None,
        final_soft_cap: h.final_soft_cap,
    };
    gemma::transformer(b, h, &member)
}

fn rotation(b: &mut Builder<'_, '_>, h: &Hparams, layer: &LayerHparams) -> Result<RopeId, Error> {
    if layer.window.is_none() {
        return rope::of_layer(b, h, layer, Pairs::Split);
    }
    let freq_base = if h.windows.has_freq_base { layer.freq_base } else { FREQ_BASE_SWA };
    let layer = LayerHparams { freq_base, ..*layer };
    rope::declare(b, &layer, Pairs::Split, RopeScaling::None, &|_| false)
}
