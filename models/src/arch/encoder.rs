//! Encoders: one description of a bidirectional transformer with norms behind attention and
//! network, with the choices in which families differ.
//!
//! Every token sees all of its text, so nothing is kept between batches. The output is an embedding
//! a token; `pooling_type` says how they become one.

use super::{
    blocks,
    decoder::{Branch, FeedForward, Rope},
};
use crate::{
    error::Error,
    graph::{Builder, Columns, RowOf, Scores},
    hparams::{Hparams, LayerHparams},
};
use backstitch_core::rope::Pairs;

/// The choices of a family of encoders.
pub(super) struct Encoder {
    /// Declares the rotation of a layer, if it has one.
    pub(super) rope: Rope,
    /// The treatment of attention scores.
    pub(super) scores: fn(&Hparams, &LayerHparams) -> Scores,
    /// The feed-forward network.
    pub(super) feed_forward: FeedForward,
}

impl Encoder {
    /// The treatment of attention scores that most families have.
    pub(super) const SCORES: fn(&Hparams, &LayerHparams) -> Scores =
        |h, layer| Scores::scaled(h.attention_scale(layer));

    /// Describe the model. Rows of `position_embd`, one for each position, are added to the
    /// embeddings where the file has them, and so is the first of `token_types`, since there is one
    /// kind of token. Where a layer has a second norm behind attention (`attn_norm_2`), what the
    /// layer reads is added once more in front of it.
    pub(super) fn build(&self, b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
        let mut x = blocks::embed(b, h)?;
        blocks::add_rows(b, h, x, RowOf::First, "token_types.weight")?;
        blocks::add_rows(b, h, x, RowOf::Position, "position_embd.weight")?;
        b.norm_in_place(x, blocks::layer_norm(h, "token_embd_norm"))?;
        for layer in h.layers() {
            let rope = (self.rope)(b, h, &layer, Pairs::Split)?;
            b.encoder_layer(blocks::cells(&layer, rope));
            let qkv = blocks::qkv(b, h, &layer, x)?;
            b.norm_if_there(qkv.q, blocks::layer_norm(h, "attn_q_norm"))?;
            b.norm_if_there(qkv.k, blocks::layer_norm(h, "attn_k_norm"))?;
            blocks::rotate(b, &layer, qkv, rope);
            let attn = b.attend(qkv, (self.scores)(h, &layer));
            let [attn, residual] = b.last_outputs(layer.is_last, [attn, x]);
            x = residual;
            let (all, again) = (Columns { first: 0, n: h.n_embd, group: h.n_embd }, "attn_norm_2");
            let kept = b.has("attn_norm_2.weight").then(|| b.columns("kept", x, all));
            b.add_linear(x, attn, "attn_output")?;
            b.norm_in_place(x, blocks::layer_norm(h, "attn_output_norm"))?;
            if let Some(kept) = kept {
                b.add(x, kept);
                b.norm_in_place(x, blocks::layer_norm(h, again))?;
            }
            let branch = Branch::to(x);
            (self.feed_forward)(b, h, &layer, x, branch)?;
            b.norm_in_place(x, blocks::layer_norm(h, "layer_output_norm"))?;
            b.end_layer(x);
        }
        b.head();
        b.embeddings(x);
        Ok(())
    }
}
