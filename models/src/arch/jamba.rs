//! Jamba (Lieber et al., 2024, arXiv 2403.19887): mostly Mamba mixers, some layers with attention that knows no
//! positions, and in some layers a mixture of experts.

use super::{Arch, blocks, mamba};
use crate::{
    error::Error,
    graph::{Builder, ExpertWeights, RopeId},
    hparams::Hparams,
};
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "jamba", build };

const NO_ROPE: Option<RopeId> = None;

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        let attends = h.attends(il);
        let attention = if attends { h.attention_layer(b, NO_ROPE) } else { Default::default() };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let (mut mixed, output) = if attends {
            let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
            (blocks::attention(b, h, normed, NO_ROPE)?, output)
        } else {
            (mamba::mixer(b, h, normed)?, b.linear("ssm_out", h.n_embd, h.ssm()?.d_inner)?)
        };
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        b.add_linear(x, mixed, output);
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
        match h.experts.filter(|_| b.has("ffn_gate_inp.weight")) {
            Some(experts) => blocks::mixture(b, h, &experts, [x, normed], ExpertWeights::Plain, 1.0)?,
            None => blocks::network(b, h, x, normed)?,
        }
    }
    blocks::head(b, h, x)
}
