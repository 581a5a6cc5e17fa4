//! PLaMo 13B (Preferred Networks, 2023, the model card of PLaMo-13B): attention and network read
//! the same normalised stream.

use super::decoder::{Decoder, Residual};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { residual: Residual::Parallel, ..Decoder::SPLIT }.build(b, h)
}
