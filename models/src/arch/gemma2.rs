//! Gemma 2 (Gemma Team, 2024, arXiv 2408.00118).
//!
//! Every other layer has a window, from the first on. Attention scores and logits are capped by a
//! tanh (`attn_logit_softcapping`, `final_logit_softcapping`). Early files state neither the window
//! nor the caps; those of the paper are taken then.

use super::{
    gemma::{self, Member},
    rope,
};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};
use backstitch_core::rope::Pairs;

/// Positions that windowed layers see, unless the file says otherwise.
const WINDOW: u32 = 4096;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut h = h.clone();
    h.windows.n_swa.get_or_insert(WINDOW);
    let member = Member {
        n_layer_scaled_by_embd: 46,
        pattern: Pattern::Every(2),
        rope: &|b, h, layer| rope::of_layer(b, h, layer, Pairs::Split),
        attn_soft_cap: h.attn_soft_cap.or(Some(50.0)),
        final_soft_cap: h.final_soft_cap.or(Some(30.0)),
    };
    gemma::transformer(b, &h, &member)
}
