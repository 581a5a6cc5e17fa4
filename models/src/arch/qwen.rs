//! Qwen of 2023 (Bai et al., arXiv 2309.16609): one matrix makes queries, keys and values, with
//! biases. The network is half as wide as `feed_forward_length` says.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        feed_forward: |b, h, layer, x, branch| {
            let layer = LayerHparams { n_ff: layer.n_ff / 2, ..*layer };
            blocks::gated_network(b, h, &layer, x, branch)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
