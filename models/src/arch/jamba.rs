//! Jamba (Lieber et al., 2024, arXiv 2403.19887): mostly Mamba mixers, and some layers of
//! attention.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a mixer. Attention knows no positions:
//! the mixers carry the order. Layers that have a router (`ffn_gate_inp`) have a mixture of
//! experts, whose weights are not renormalised; the others have a plain network.

use super::{
    blocks::{self, Ffn},
    mamba,
};
use crate::{
    error::Error,
    graph::{Builder, ExpertWeights, Norm},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        b.layer(layer.attends().then(|| blocks::cells(&layer, None)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let (mixed, output) = match layer.attends() {
            true => (blocks::attention(b, h, &layer, normed, None)?, "attn_output"),
            false => (mamba::mixer(b, h, normed)?, "ssm_out"),
        };
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, output)?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        match h.experts.filter(|_| b.has("ffn_gate_inp.weight")) {
            Some(experts) => {
                b.add_mixture(x, normed, blocks::mixture(&experts, ExpertWeights::Plain, 1.0))?;
            }
            None => blocks::add_network(b, Ffn::of_layer(&layer), x, normed)?,
        }
    }
    blocks::head(b, h, x)
}
