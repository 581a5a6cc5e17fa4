//! GPT-2 (Radford et al., 2019, "Language Models are Unsupervised Multitask Learners"), and
//! StarCoder (Li et al., 2023, arXiv 2305.06161), whose heads share one head of keys and values.
//!
//! Positions are learned: a row of `position_embd` is added to each token's embedding, so a text
//! can be no longer than that table.

use super::{blocks, decoder::Decoder};
use crate::{
    error::Error,
    graph::{Builder, RowOf},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        embedded: |b, h, x| blocks::add_rows(b, h, x, RowOf::Position, "position_embd.weight"),
        rope: |_, _, _, _| Ok(None),
        ..Decoder::GPT
    };
    decoder.build(b, h)
}
