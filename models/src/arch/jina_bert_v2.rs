//! Jina Embeddings 2 (Günther et al., 2023, arXiv 2310.19923): BERT with gates by GELU, and with
//! scores that fall with the distance (ALiBi) in the place of learned positions. The model for code
//! normalises queries and keys, and what attention adds once more.

use super::{blocks, bloom, encoder::Encoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let encoder = Encoder {
        rope: |_, _, _, _| Ok(None),
        scores: bloom::scores,
        feed_forward: blocks::gelu_gated_network,
    };
    encoder.build(b, h)
}
