//! Qwen 2 and 2.5 (Yang et al., 2024, arXiv 2407.10671).
//!
//! The transformer of `blocks::transformer` with biases on queries, keys and values, and rotation
//! of dimensions half a head apart. Small members lack `output.weight` and use their embeddings.

use super::blocks;
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    blocks::transformer(b, h, Pairs::Split)
}
