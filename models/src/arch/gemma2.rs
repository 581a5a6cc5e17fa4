//! Gemma 2 (Gemma Team, 2024, arXiv 2408.00118): every other layer has a window; scores and logits are capped.

use super::{Arch, gemma};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern, Windows},
};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "gemma2", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    // Early files do not state their window.
    let n_swa = Some(h.windows.n_swa.unwrap_or(4096));
    let h = &Hparams { windows: Windows { n_swa, ..h.windows.clone() }, ..h.clone() };
    let full = h.rope(b, Pairs::Split)?;
    let windowed = match h.windows.freq_base {
        Some(_) => h.window_rope(b, Pairs::Split, h.rope)?,
        None => full,
    };
    let member = gemma::Member {
        n_layer_scaled_by_embd: 46,
        pattern: Pattern::Every(2),
        ropes: [full, windowed],
        attn_soft_cap: h.attn_soft_cap.unwrap_or(50.0),
        final_soft_cap: h.final_soft_cap.unwrap_or(30.0),
    };
    gemma::transformer(b, h, &member)
}
