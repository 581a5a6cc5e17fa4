//! AFM-4.5B (Arcee AI, 2025, the model card of AFM-4.5B): Llama with a network of squared
//! rectifiers, which has no gate.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { feed_forward: blocks::squared_relu_network, ..Decoder::LLAMA }.build(b, h)
}
