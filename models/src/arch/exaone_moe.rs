//! K-EXAONE (LG AI Research, 2026, arXiv 2601.01739): Qwen 3 with three layers that have a window,
//! then one that sees everything and knows no positions; experts behind a few layers with one
//! network, beside a network for all tokens.

use super::{blocks, decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        pattern: Pattern::Every(4),
        rope: rope::of_windowed,
        feed_forward: blocks::gated_network_by_sigmoid,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
