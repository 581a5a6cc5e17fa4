//! BERT (Devlin et al., 2018, arXiv 1810.04805), and the embedding models made of it: learned
//! positions, and a network without a gate.

use super::{blocks, encoder::Encoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let encoder =
        Encoder { rope: |_, _, _, _| Ok(None), scores: Encoder::SCORES, feed_forward: blocks::gelu_network };
    encoder.build(b, h)
}
