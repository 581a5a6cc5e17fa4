//! Qwen 3 (Yang et al., 2025, arXiv 2505.09388): queries and keys are normalised head by head.

use super::{Arch, blocks};
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "qwen3", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Split)?;
    blocks::transformer(b, h, rope)
}
