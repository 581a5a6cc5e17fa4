//! Granite 4 (IBM, 2025, the Granite 4.0 model cards): Mamba-2 mixers, and some layers of
//! attention.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a mixer. Factors are those of Granite
//! 3.

use super::{decoder::Decoder, granite, mamba2};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mixer: super::decoder::Mixer = |b, h, _, x| Ok((mamba2::mixer(b, h, x)?, "ssm_out"));
    Decoder { mixer, ..granite::decoder(h) }.build(b, h)
}
