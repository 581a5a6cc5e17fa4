//! Llama-Nemotron and DeciLM (Bercovich et al., 2025, arXiv 2505.00949): Llama after a search that
//! removed parts of it.
//!
//! Heads and widths differ by layer (`attention.head_count`, `feed_forward_length`). A layer with
//! query heads but none for keys has a matrix in the place of attention, one without any heads goes
//! on with its network, and one without a width has none.

use super::{
    blocks::{self, Ffn},
    decoder::{AttentionSpec, Branch, Decoder},
    rope,
};
use crate::{error::Error, graph::Builder, hparams::Hparams};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let turns = layer.attends().then(|| rope::of_layer(b, h, &layer, Pairs::Adjacent));
        let rope = turns.transpose()?;
        b.layer(layer.attends().then(|| blocks::cells(&layer, rope)));
        let mixed = match layer.n_head {
            0 => None,
            _ => Some(b.norm(x, blocks::rms_norm(h, "attn_norm"))?),
        };
        let spec = AttentionSpec { h, layer: &layer, choices: &Decoder::LLAMA, rope };
        let mixed = match mixed.filter(|_| layer.attends()) {
            Some(normed) => Some(blocks::attention(b, spec, normed)?),
            None => mixed,
        };
        let mixed = mixed.map(|mixed| b.last_outputs(layer.is_last, [mixed])[0]);
        [x] = b.last_outputs(layer.is_last, [x]);
        if let Some(mixed) = mixed {
            b.add_linear(x, mixed, "attn_output")?;
        }
        if layer.n_ff > 0 {
            let normed = b.norm(x, blocks::rms_norm(h, "ffn_norm"))?;
            Ffn::of_layer(&layer).add(b, h, normed, Branch::to(x))?;
        }
        b.end_layer(x);
    }
    blocks::head(b, h, x)
}
