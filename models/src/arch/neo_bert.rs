//! NeoBERT (Le Breton et al., 2025, arXiv 2502.19587): the layers of Llama with fused matrices, but
//! every token sees all of its text. The final norm is named `enc.output_norm`.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { is_encoder: true, output_norm: "enc.output_norm", ..Decoder::LLAMA }.build(b, h)
}
