//! BERT (Devlin et al., 2018, arXiv 1810.04805): an encoder, and the embedding models made of it.
//!
//! Every token sees all of its text, so nothing is kept between batches. Norms come after the
//! residual. Positions are learned: a row of `position_embd` is added to each token's embedding,
//! and the first row of `token_types`, since there is one kind of token. The output is an embedding
//! a token; `pooling_type` says how they become one.

use super::blocks;
use crate::{
    error::Error,
    graph::{Activation, Builder, EmbedTable, Linear, Norm, RowOf, Scores},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for (by, name) in [(RowOf::First, "token_types.weight"), (RowOf::Position, "position_embd.weight")] {
        if let Some(n_rows) = b.n_rows(name) {
            let y = b.embed(EmbedTable { name, n_rows, width: h.n_embd, by, scale: 1.0 })?;
            b.add(x, y);
        }
    }
    b.norm_in_place(x, Norm::layer("token_embd_norm", h.norm_eps))?;
    for layer in h.layers() {
        b.encoder_layer(blocks::cells(&layer, None));
        let qkv = blocks::qkv(b, &layer, x)?;
        let attn = b.attend(qkv, Scores::scaled(h.attention_scale(&layer)));
        let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
        x = residual;
        b.add_linear(x, attn, "attn_output")?;
        b.norm_in_place(x, Norm::layer("attn_output_norm", h.norm_eps))?;
        let up = b.linear(x, Linear::new("ffn_up", layer.n_ff))?;
        b.activate(Activation::Gelu, up);
        b.add_linear(x, up, "ffn_down")?;
        b.norm_in_place(x, Norm::layer("layer_output_norm", h.norm_eps))?;
    }
    b.head();
    b.embeddings(x);
    Ok(())
}
