//! Phi-1, Phi-1.5 and Phi-2 (Li et al., 2023, arXiv 2309.05463).
//!
//! Attention and network read the same normalised stream. A part of each head is rotated, and the
//! scores of the vocabulary have a bias.

use super::decoder::{Decoder, Residual};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { residual: Residual::Parallel, ..Decoder::GPT }.build(b, h)
}
