//! The text model of Qwen 2 VL and Qwen 2.5 VL (Wang et al., 2024, arXiv 2409.12191).
//!
//! Positions have axes, time, height and width (`rope.dimension_sections`): text has the same
//! position on all three, and none on the fourth, so pairs of dimensions that the fourth turns stay
//! where they are.

use super::{decoder::Decoder, rope};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |b, h, layer, pairs| {
            // Sections follow one another, and begin anew behind the last.
            let is_fixed = |pair| {
                h.rope_sections.is_some_and(|sections| {
                    let own: usize = sections[..3].iter().sum();
                    pair % (own + sections[3]).max(1) >= own
                })
            };
            rope::declare(b, layer, pairs, h.rope, &is_fixed).map(Some)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
