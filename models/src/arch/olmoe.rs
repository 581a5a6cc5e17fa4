//! OLMoE (Muennighoff et al., 2024, arXiv 2409.02060): experts whose weights are not renormalised;
//! queries and keys are normalised as wholes, not head by head.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        head_norm: |h, _, name| blocks::rms_norm(h, name),
        feed_forward: blocks::gated_network_plain,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
