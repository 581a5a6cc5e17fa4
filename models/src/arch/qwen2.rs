//! Qwen 2 and 2.5 (Yang et al., 2024, arXiv 2407.10671): biases on queries, keys and values.

use super::{Arch, blocks};
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "qwen2", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Split)?;
    blocks::transformer(b, h, rope)
}
