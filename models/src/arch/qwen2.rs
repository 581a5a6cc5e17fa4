//! Qwen 2 and 2.5 (Yang et al., 2024, arXiv 2407.10671).
//!
//! Queries, keys and values have biases. Small members lack `output.weight` and use their
//! embeddings.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::SPLIT.build(b, h)
}
