//! BERT (Devlin et al., 2018, arXiv 1810.04805): an encoder. Every token sees all of its text, norms come after the
//! residual, positions are learned, and what comes out are embeddings.

use super::Arch;
use crate::{
    error::Error,
    graph::{Activation, Builder, RowOf, Scores, Value},
    hparams::Hparams,
};
use backstitch_kv::{AttentionLayer, AttentionSpec, LayerSpec};

pub(super) static ARCH: Arch = Arch { name: "bert", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for (by, table) in [(RowOf::First, "token_types.weight"), (RowOf::Position, "position_embd.weight")] {
        if let Some(n_rows) = b.n_rows(table) {
            let y = b.embed_by(by, table, n_rows, h.n_embd)?;
            b.add(x, y);
        }
    }
    b.layer_norm(x, "token_embd_norm", h.norm_eps)?;
    for il in 0..h.n_layer {
        let layer =
            AttentionLayer { n_head_kv: h.n_head_kv, d_k: h.d_k, d_v: h.d_v, window: None, rope: None };
        let attention = AttentionSpec::Uncached { layer, causal: false };
        b.layer(LayerSpec { attention, ..LayerSpec::default() });
        let mut attn = attention_of(b, h, x)?;
        if il + 1 == h.n_layer {
            (attn, x) = (b.outputs(attn), b.outputs(x));
        }
        let output = b.linear("attn_output", h.n_embd, h.n_head * h.d_v)?;
        b.add_linear(x, attn, output);
        b.layer_norm(x, "attn_output_norm", h.norm_eps)?;
        let up = b.linear("ffn_up", h.n_ff, h.n_embd)?;
        let [up] = b.linears(x, [up], ["up"]);
        b.activate(Activation::Gelu, up);
        let down = b.linear("ffn_down", h.n_embd, h.n_ff)?;
        b.add_linear(x, up, down);
        b.layer_norm(x, "layer_output_norm", h.norm_eps)?;
    }
    b.head();
    b.embeddings(x);
    Ok(())
}

fn attention_of(b: &mut Builder<'_, '_>, h: &Hparams, x: Value) -> Result<Value, Error> {
    let matrices = [
        b.linear("attn_q", h.n_head * h.d_k, h.n_embd)?,
        b.linear("attn_k", h.n_head_kv * h.d_k, h.n_embd)?,
        b.linear("attn_v", h.n_head_kv * h.d_v, h.n_embd)?,
    ];
    let [q, k, v] = b.linears(x, matrices, ["q", "k", "v"]);
    Ok(b.attend(q, k, v, h.n_head, h.d_v, Scores { scale: h.attention_scale(), soft_cap: 0.0 }))
}
