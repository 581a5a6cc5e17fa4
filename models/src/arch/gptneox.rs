//! GPT-NeoX and Pythia (Black et al., 2022, arXiv 2204.06745).
//!
//! Only the first `rope.dimension_count` dimensions of a head are rotated. With
//! `use_parallel_residual`, attention and network read the same stream, each behind a norm of its
//! own.

use super::decoder::{Decoder, Residual};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let residual = match h.has_parallel_residual {
        Some(false) => Residual::Sequential,
        _ => Residual::ParallelNormed,
    };
    Decoder { residual, ..Decoder::GPT }.build(b, h)
}
