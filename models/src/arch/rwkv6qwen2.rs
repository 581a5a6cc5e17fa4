//! QRWKV 6 (Recursal, 2024, model card recursal/QRWKV6-32B-Instruct-Preview-v0.1): Qwen 2.5 with
//! the time mixing of RWKV 6 in the place of attention.
//!
//! The recurrence is gated linear attention: a key learns what the decay leaves free, and no weight
//! reads a token's own value apart (files lack `time_mix_first`). Keys and values have as many
//! heads as Qwen's (`attention.head_count_kv`), each shared by neighbours. No norm stands behind
//! it, and its gate is a sigmoid.

use super::rwkv::{self, Shifted};
use super::rwkv6::{self, Projected};
use crate::{
    error::Error,
    graph::{Activation, Builder, GlaInputs, GlaSizes, Value},
    hparams::{Hparams, LayerHparams},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    rwkv::transformer(b, h, &mut time_mix)
}

fn time_mix(b: &mut Builder<'_, '_>, h: &Hparams, layer: &LayerHparams, x: Shifted) -> Result<Value, Error> {
    let wkv = h.wkv_of(1)?;
    let (n_head, d_head, n_head_kv) = (wkv.n_head, wkv.d_head, h.wkv_heads_kv(layer, wkv)?);
    let Projected { r, w, k, v, gate } = rwkv6::projected(b, h, x, n_head_kv * d_head)?;
    let y = b.gla(GlaInputs { r, w, k, v }, GlaSizes { n_head, n_head_kv, d_head });
    Ok(b.gate(Activation::Sigmoid, gate, y))
}
