//! PLM 1.8B (Deng et al., 2025, arXiv 2503.12167): latent attention, whose cells hold the keys and
//! values of all heads, and a network of squared rectifiers.

use super::{blocks, decoder::Decoder, mla};
use crate::{
    error::Error,
    graph::{Builder, Scores},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        cells: mla::cells,
        scores: |_, layer| Scores::scaled(1.0 / libm::sqrtf(layer.d_k as f32)),
        attention: mla::attention,
        feed_forward: blocks::squared_relu_network,
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
