//! StableLM (Bellagente et al., 2024, arXiv 2402.17834).
//!
//! Layer norms, a network with a gate, and rotation of a part of each head. StableLM 2 12B
//! normalises queries and keys, with weights for each head, and its network reads what attention
//! reads: its files have no `ffn_norm`.

use super::{
    blocks,
    decoder::{Decoder, Residual},
};
use crate::{
    error::Error,
    graph::{Builder, Norm},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    b.block(0);
    let residual = if b.has("ffn_norm.weight") { Residual::Sequential } else { Residual::Parallel };
    b.head();
    let decoder = Decoder {
        norm: blocks::layer_norm,
        head_norm: |h, layer, name| Norm::layer_groups(name, h.norm_eps, layer.d_k),
        residual,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
