//! BitNet b1.58 (Ma et al., 2024, arXiv 2402.17764): Llama with a norm in front of the output
//! projection of attention and one in front of the network's (`attn_sub_norm`, `ffn_sub_norm`).

use super::{blocks, blocks::Ffn, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        attention: |b, spec, x| {
            let y = blocks::attention(b, spec, x)?;
            b.norm_in_place(y, blocks::rms_norm(spec.h, "attn_sub_norm"))?;
            Ok(y)
        },
        feed_forward: |b, h, layer, x, branch| {
            let network = Ffn::of_layer(layer);
            let product = network.product(b, x)?;
            b.norm_in_place(product, blocks::rms_norm(h, "ffn_sub_norm"))?;
            branch.add_linear(b, h, product, network.down)
        },
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
