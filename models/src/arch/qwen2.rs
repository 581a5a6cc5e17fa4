//! Qwen 2 and 2.5 (Yang et al., 2024, arXiv 2407.10671), and the models with its layout: EXAONE 3
//! (LG AI Research, 2024, arXiv 2408.03541) and openPangu Embedded (Chen et al., 2025, arXiv
//! 2505.22375).
//!
//! Queries, keys and values have biases where the file has them. Small members lack `output.weight`
//! and use their embeddings.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::SPLIT.build(b, h)
}
