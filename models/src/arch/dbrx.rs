//! DBRX (Databricks, 2024, the model card of DBRX): layer norms without biases, experts in every
//! layer, and queries, keys and values held within `attention.clamp_kqv`. The norm in front of the
//! experts is named `attn_output_norm`.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder { norm: blocks::layer_norm, ffn_norm: Some("attn_output_norm"), ..Decoder::SPLIT };
    decoder.build(b, h)
}
