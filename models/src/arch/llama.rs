//! Llama (Touvron et al., 2023, arXiv 2302.13971) and what follows its layout: SmolLM, Mistral, Mixtral, TinyLlama.

use super::{Arch, blocks};
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) static ARCH: Arch = Arch { name: "llama", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let rope = h.rope(b, Pairs::Adjacent)?;
    blocks::transformer(b, h, rope)
}
