//! Gemma 3 (Gemma Team, 2025, arXiv 2503.19786): five layers with a window, then one without, each kind with a rotation of
//! its own; queries and keys are normalised head by head.

use super::{Arch, gemma};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern, RopeParams, RopeScaling},
};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "gemma3", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    // Longer contexts stretch the rotation of full layers only.
    let local = RopeParams { freq_base: 10_000.0, scaling: RopeScaling::None, ..h.rope };
    let member = gemma::Member {
        n_layer_scaled_by_embd: 62,
        pattern: Pattern::Every(6),
        ropes: [h.rope(b, Pairs::Split)?, h.window_rope(b, Pairs::Split, local)?],
        attn_soft_cap: 0.0,
        final_soft_cap: h.final_soft_cap.unwrap_or(0.0),
    };
    gemma::transformer(b, h, &member)
}
