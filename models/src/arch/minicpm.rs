//! MiniCPM (Hu et al., 2024, arXiv 2404.06395): Llama with the factors of Granite. Early files
//! state none; those of the paper are taken then.

use super::{decoder::Decoder, minicpm3};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Scales},
};

/// The factors of a file that states none.
const UNSTATED: Scales = Scales { embedding: 1.0, residual: 1.0, logit: 1.0 };

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let scales = match h.scales {
        UNSTATED => minicpm3::scales(h),
        stated => Scales { logit: 1.0 / stated.logit, ..stated },
    };
    let decoder = Decoder {
        embed_scale: scales.embedding,
        residual_scale: scales.residual,
        logit_scale: scales.logit,
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
