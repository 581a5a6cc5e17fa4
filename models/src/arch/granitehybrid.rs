//! Granite 4 (IBM, 2025, model card ibm-granite/granite-4.0-h-small): Mamba-2 mixers in most
//! layers, attention in the others.
//!
//! `attention.head_count_kv` has an element a layer; 0 marks a mixer. Behind each stands a network,
//! or a mixture of experts beside one network for all tokens (`expert_*`). Factors keep the
//! residual stream even: embeddings times `embedding_scale`, each branch times `residual_scale`,
//! scores times `attention.scale`, logits divided by `logit_scale`.

use super::{
    blocks::{self, Ffn},
    mamba2, rope,
};
use crate::{
    error::Error,
    graph::{Builder, ExpertWeights, Linear, Norm, Value},
    hparams::Hparams,
};
use backstitch_core::rope::Pairs;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed_scaled(b, h, h.scales.embedding)?;
    for layer in h.layers() {
        // Files say by this odd key if queries and keys are rotated.
        let rope = match h.rope.finetuned {
            Some(false) => None,
            _ => Some(rope::of_layer(b, h, &layer, Pairs::Adjacent)?),
        };
        b.layer(layer.attends().then(|| blocks::cells(&layer, rope)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let (mixed, output) = match layer.attends() {
            true => (blocks::attention(b, h, &layer, normed, rope)?, "attn_output"),
            false => (mamba2::mixer(b, h, normed)?, "ssm_out"),
        };
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        let mixed = b.linear(mixed, Linear::new(output, h.n_embd))?;
        add_scaled(b, h, x, mixed);
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        let dense = match h.experts {
            Some(experts) => {
                let weights = ExpertWeights::Renormalised;
                b.add_mixture(x, normed, blocks::mixture(&experts, weights, h.scales.residual))?;
                (experts.n_ff_shared > 0).then(|| Ffn::shared(experts.n_ff_shared))
            }
            None => Some(Ffn::of_layer(&layer)),
        };
        if let Some(dense) = dense {
            let y = blocks::network(b, h, dense, normed)?;
            add_scaled(b, h, x, y);
        }
    }
    b.head();
    let x = b.norm(x, Norm::rms("output_norm", h.norm_rms_eps))?;
    b.scale(x, 1.0 / h.scales.logit);
    b.logits(x, h.n_vocab, None)
}

fn add_scaled(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, y: Value) {
    b.scale(y, h.scales.residual);
    b.add(x, y);
}
