//! Falcon (Almazrouei et al., 2023, arXiv 2311.16867).
//!
//! Attention and network read the same normalised stream; in Falcon 40B attention has a norm of its
//! own, `attn_norm_2`, and `attn_norm` is the network's.

use super::decoder::{Decoder, Residual};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    b.block(0);
    let has_both = b.has("attn_norm_2.weight");
    b.head();
    let decoder = match has_both {
        true => Decoder {
            attn_norm: Some("attn_norm_2"),
            ffn_norm: Some("attn_norm"),
            residual: Residual::ParallelNormed,
            ..Decoder::GPT
        },
        false => Decoder { residual: Residual::Parallel, ..Decoder::GPT },
    };
    decoder.build(b, h)
}
