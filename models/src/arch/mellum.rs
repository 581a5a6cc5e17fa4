//! Mellum 2 (JetBrains, 2026, the model cards of Mellum): Qwen 3 with experts in every layer.
//!
//! Three layers have a window, and a rotation that is not stretched; then comes one without.

use super::{decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder { pattern: Pattern::Every(4), rope: rope::stretched_where_full, ..Decoder::SPLIT };
    decoder.build(b, h)
}
