//! The RWKV family, versions 6 and 7: a recurrence and a network in each layer, each of which sees
//! the token before its own.
//!
//! There is no attention and no cache. A layer's state is two token shifts, one for each half, and
//! a matrix `[d_head, d_head]` for each head (`wkv.head_size`). Norms are layer norms. Some files
//! halve the residual stream every few layers (`rescale_every_n_layers`), which their weights make
//! up for.
//!
//! Models that were converted from a transformer have the recurrence in the place of attention, and
//! else its layers: RMS norms, a gated network, one token shift (`token_shift_count`).

use super::{blocks, decoder::Branch};
use crate::{
    error::Error,
    graph::{Builder, Norm, Value, WkvSizes},
    hparams::{Hparams, LayerHparams, Wkv},
};

/// Added to the variance of a head, whatever the file says of other norms.
pub(super) const HEAD_EPS: f32 = 64e-5;

/// A normalised stream and its rows of the token before.
#[derive(Clone, Copy)]
pub(super) struct Shifted {
    pub(super) x: Value,
    pub(super) before: Value,
}

/// The two halves of a layer, in which the versions differ.
pub(super) struct Halves<'f> {
    /// The recurrence up to, not including, its output projection.
    pub(super) time_mix: TimeMix<'f>,
    /// Adds the network to the residual stream.
    pub(super) channel_mix: ChannelMix,
}

pub(super) type TimeMix<'f> =
    &'f mut dyn FnMut(&mut Builder<'_, '_>, &Hparams, WkvSizes, Shifted) -> Result<Value, Error>;

pub(super) type ChannelMix =
    fn(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Value, Shifted) -> Result<(), Error>;

/// Describe a version.
pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams, halves: Halves<'_>) -> Result<(), Error> {
    let Wkv { n_head, d_head, rescale_every_n_layers, .. } = h.wkv_of(2)?;
    let sizes = WkvSizes { n_head, d_head, eps: HEAD_EPS };
    let mut x = blocks::embed(b, h)?;
    b.norm_in_place(x, Norm::layer("token_embd_norm", h.norm_eps))?;
    for layer in h.layers() {
        b.layer(None);
        let normed = b.norm(x, Norm::layer("attn_norm", h.norm_eps))?;
        let before = b.shift(normed);
        let mixed = (halves.time_mix)(b, h, sizes, Shifted { x: normed, before })?;
        b.add_linear(x, mixed, "time_mix_output")?;
        let normed = b.norm(x, Norm::layer("attn_norm_2", h.norm_eps))?;
        let before = b.shift(normed);
        let [normed, before, residual] = b.last_outputs(layer.is_last, [normed, before, x]);
        x = residual;
        (halves.channel_mix)(b, h, &layer, x, Shifted { x: normed, before })?;
        if rescale_every_n_layers > 0 && (layer.il + 1).is_multiple_of(rescale_every_n_layers) {
            b.scale(x, 0.5);
        }
        b.end_layer(x);
    }
    b.head();
    b.norm_in_place(x, Norm::layer("output_norm", h.norm_eps))?;
    b.logits(x, h.n_vocab, None)
}

/// The recurrence of a layer of a transformer, up to, not including, its output projection.
pub(super) type InPlaceOfAttention<'f> =
    &'f mut dyn FnMut(&mut Builder<'_, '_>, &Hparams, &LayerHparams, Shifted) -> Result<Value, Error>;

/// Describe a transformer of Qwen's kind that has a recurrence in the place of attention.
pub(super) fn transformer(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    time_mix: InPlaceOfAttention<'_>,
) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        b.layer(None);
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let before = b.shift(normed);
        let mixed = time_mix(b, h, &layer, Shifted { x: normed, before })?;
        let [mixed, residual] = b.last_outputs(layer.is_last, [mixed, x]);
        x = residual;
        b.add_linear(x, mixed, "time_mix_output")?;
        let normed = b.norm(x, Norm::rms("ffn_norm", h.norm_rms_eps))?;
        blocks::gated_network(b, h, &layer, normed, Branch::to(x))?;
        b.end_layer(x);
    }
    b.head();
    b.norm_in_place(x, Norm::rms("output_norm", h.norm_rms_eps))?;
    if b.has("output_norm.bias") {
        b.bias(x, "output_norm.bias")?;
    }
    b.logits(x, h.n_vocab, None)
}
