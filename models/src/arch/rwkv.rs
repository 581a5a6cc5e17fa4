//! What RWKV 6 and 7 share: a recurrence and a network in each layer, each of which sees the token before its own.

use crate::{
    error::Error,
    graph::{Builder, Value},
    hparams::{Hparams, Wkv},
};
use backstitch_kv::LayerSpec;

/// Added to the variance of a head, whatever the file says of other norms.
pub(super) const HEAD_EPS: f32 = 64e-5;

/// The two halves of a layer, where the versions differ.
pub(super) struct Halves<'f> {
    /// The recurrence over the normalised stream and its tokens before, up to, not including, its output projection.
    pub(super) time_mix: TimeMix<'f>,
    /// Adds the network over the same, of the second norm, to the residual stream, its first argument.
    pub(super) channel_mix: fn(&mut Builder<'_, '_>, &Hparams, Value, [Value; 2]) -> Result<(), Error>,
}

pub(super) type TimeMix<'f> =
    &'f mut dyn FnMut(&mut Builder<'_, '_>, &Hparams, Wkv, [Value; 2]) -> Result<Value, Error>;

/// The whole graph.
pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams, halves: Halves<'_>) -> Result<(), Error> {
    let wkv = h.wkv()?;
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    b.layer_norm(x, "token_embd_norm", h.norm_eps)?;
    for il in 0..h.n_layer {
        b.layer(LayerSpec::default());
        let normed = b.layer_normed(x, "attn_norm", h.norm_eps)?;
        let before = b.shift(normed);
        let mixed = (halves.time_mix)(b, h, wkv, [normed, before])?;
        let output = b.linear("time_mix_output", h.n_embd, h.n_embd)?;
        b.add_linear(x, mixed, output);
        let mut normed = b.layer_normed(x, "attn_norm_2", h.norm_eps)?;
        let mut before = b.shift(normed);
        if il + 1 == h.n_layer {
            (normed, before, x) = (b.outputs(normed), b.outputs(before), b.outputs(x));
        }
        (halves.channel_mix)(b, h, x, [normed, before])?;
        if wkv.rescale_every_n_layers > 0 && (il + 1).is_multiple_of(wkv.rescale_every_n_layers) {
            b.scale(x, 0.5);
        }
    }
    b.head();
    b.layer_norm(x, "output_norm", h.norm_eps)?;
    b.logits(x, h.n_vocab)
}
