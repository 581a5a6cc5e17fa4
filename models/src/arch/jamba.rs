//! Jamba (Lieber et al., 2024, arXiv 2403.19887): mostly Mamba mixers, and some layers of
//! attention.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a mixer. Attention knows no positions:
//! the mixers carry the order. Layers that have a router (`ffn_gate_inp`) have a mixture of
//! experts, whose weights are not renormalised; the others have a plain network.

use super::{blocks, decoder::Decoder, mamba};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        rope: |_, _, _, _| Ok(None),
        mixer: |b, h, _, x| Ok((mamba::mixer(b, h, x)?, "ssm_out")),
        feed_forward: blocks::gated_network_plain,
        ..Decoder::LLAMA
    };
    decoder.build(b, h)
}
