//! SmallThinker (Song et al., 2025, arXiv 2507.20984).
//!
//! The router reads the stream in front of attention, so that experts can be fetched in time; gates
//! of experts are rectifiers. In the larger model one layer sees everything and knows no positions,
//! then come three with a window, of 4096 positions whatever the file says.

use super::{blocks, decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::{Activation, Builder, ExpertNetwork, Mixture, Routing},
    hparams::{Hparams, Pattern},
};

/// Positions that windowed layers see.
const WINDOW: u32 = 4096;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut h = h.clone();
    h.windows.n_swa = h.windows.n_swa.filter(|&n| n > 0).map(|_| WINDOW);
    let decoder = Decoder {
        pattern: Pattern::FirstOf(4),
        rope: rope::of_windowed,
        routes_early: true,
        feed_forward: |b, h, layer, x, branch| {
            let mixture = blocks::mixture(&h.experts(layer)?, Routing::RENORMALISED);
            branch.add_mixture(b, x, Mixture { network: ExpertNetwork::Gated(Activation::Relu), ..mixture })
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, &h)
}
