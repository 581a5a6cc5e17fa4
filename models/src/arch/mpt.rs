//! MPT (MosaicML, 2023, the model cards of MPT-7B and MPT-30B).
//!
//! Attention scores fall with the distance where the file states `attention.max_alibi_bias`; files
//! without it have learned positions. Queries, keys and values are held within
//! `attention.clamp_kqv`. Norms have no biases.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, RowOf, Scores},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        embedded: |b, h, x| blocks::add_rows(b, h, x, RowOf::Position, "position_embd.weight"),
        rope: |_, _, _, _| Ok(None),
        head_norm: |h, _, name| blocks::layer_norm(h, name),
        scores: |h, layer| Scores {
            max_alibi_bias: h.max_alibi_bias,
            ..Scores::scaled(h.attention_scale(layer))
        },
        ..Decoder::GPT
    };
    decoder.build(b, h)
}
