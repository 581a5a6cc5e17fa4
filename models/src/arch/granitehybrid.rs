//! Granite 4 (IBM, 2025): Mamba-2 mixers in most layers, attention in the others, a network or a mixture of networks behind
//! each, and factors that keep the residual stream even.

use super::{Arch, blocks, mamba2};
use crate::{
    error::Error,
    graph::{Builder, ExpertWeights, RopeId, Value},
    hparams::Hparams,
};
use backstitch_core::rope::Pairs;
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "granitehybrid", build };

const DENSE: [&str; 3] = ["ffn_gate", "ffn_up", "ffn_down"];
const SHARED: [&str; 3] = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    // Files say by this odd key whether queries and keys are rotated.
    let rope: Option<RopeId> = match h.rope.finetuned {
        Some(false) => None,
        _ => Some(h.rope(b, Pairs::Adjacent)?),
    };
    let mut x = b.embed_scaled("token_embd.weight", h.n_vocab, h.n_embd, h.scales.embedding)?;
    for il in 0..h.n_layer {
        let attends = h.attends(il);
        let attention = if attends { h.attention_layer(b, rope) } else { Default::default() };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let (mut mixed, output) = if attends {
            let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
            (blocks::attention(b, h, normed, rope)?, output)
        } else {
            (mamba2::mixer(b, h, normed)?, b.linear("ssm_out", h.n_embd, h.ssm()?.d_inner)?)
        };
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        let [mixed] = b.linears(mixed, [output], ["mixed"]);
        add_scaled(b, h, x, mixed);
        let normed = b.rms_norm("ffn_norm", x, "ffn_norm.weight", h.norm_rms_eps)?;
        match h.experts {
            Some(experts) => {
                let scale = h.scales.residual;
                blocks::mixture(b, h, &experts, [x, normed], ExpertWeights::Renormalised, scale)?;
                if experts.n_ff_shared > 0 {
                    add_network(b, h, [x, normed], SHARED, experts.n_ff_shared)?;
                }
            }
            None => add_network(b, h, [x, normed], DENSE, h.n_ff)?,
        }
    }
    b.head();
    let x = b.rms_norm("output_norm", x, "output_norm.weight", h.norm_rms_eps)?;
    b.scale(x, 1.0 / h.scales.logit);
    b.logits(x, h.n_vocab)
}

fn add_scaled(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, y: Value) {
    b.scale(y, h.scales.residual);
    b.add(x, y);
}

/// Adds `down(silu(gate(x)) * up(x))` to `residual`, by the matrices of these names.
fn add_network(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    [residual, x]: [Value; 2],
    [gate, up, down]: [&str; 3],
    n_ff: usize,
) -> Result<(), Error> {
    let product = blocks::gated(b, h, x, [gate, up], n_ff)?;
    let down = b.linear(down, h.n_embd, n_ff)?;
    let [y] = b.linears(product, [down], ["down"]);
    add_scaled(b, h, residual, y);
    Ok(())
}
