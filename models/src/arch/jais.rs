//! Jais (Sengupta et al., 2023, arXiv 2308.16149): GPT-2 with a gate in its network and with scores
//! that fall with the distance (ALiBi), divided by the width of a head, not by its root.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |_, _, _, _| Ok(None),
        scores: |h, layer| Scores {
            max_alibi_bias: h.max_alibi_bias,
            ..Scores::scaled(1.0 / layer.d_k as f32)
        },
        feed_forward: blocks::gated_network,
        ..Decoder::GPT
    };
    decoder.build(b, h)
}
