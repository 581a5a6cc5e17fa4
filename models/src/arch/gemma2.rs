//! Gemma 2 (Gemma Team, 2024, arXiv 2408.00118).
//!
//! Every other layer has a window, from the first on. Attention scores and logits are capped by a
//! tanh (`attn_logit_softcapping`, `final_logit_softcapping`). Early files state neither the window
//! nor the caps; those of the paper are taken then.

use super::{decoder::Decoder, gemma};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::{Hparams, Pattern},
};

/// Positions that windowed layers see, unless the file says otherwise.
const WINDOW: u32 = 4096;
/// Layers of the largest member.
const N_LAYER: usize = 46;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut h = h.clone();
    h.windows.n_swa.get_or_insert(WINDOW);
    let decoder = Decoder {
        pattern: Pattern::Every(2),
        scores: |h, layer| Scores {
            soft_cap: h.attn_soft_cap.or(Some(50.0)),
            ..Scores::scaled(gemma::attention_scale(h, layer, N_LAYER))
        },
        final_soft_cap: h.final_soft_cap.or(Some(30.0)),
        ..gemma::normed(&h)
    };
    decoder.build(b, &h)
}
