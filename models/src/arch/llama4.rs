//! Llama 4 (Meta, 2025, the model cards of Llama 4 Scout and Maverick).
//!
//! Three layers see the chunk of 8192 positions that a token lies in, and rotate queries and keys;
//! then comes one that sees everything, knows no positions, and whose queries grow with the
//! logarithm of the position. Rotated queries and keys are normalised without weights, but for
//! Maverick with its 128 experts. The weight of an expert, a sigmoid, is a factor of what it reads.

use super::{
    blocks,
    decoder::{AttentionSpec, Decoder},
    rope,
};
use crate::{
    error::Error,
    graph::{Builder, Gating, Qkv, Routing, Temperature, Value},
    hparams::{Hparams, Pattern},
};
use backstitch_kv::Window;

/// Positions of a chunk, and those that share a factor of queries.
const CHUNK: u32 = 8192;
/// Experts of the member that does not normalise queries and keys.
const N_EXPERT_PLAIN: usize = 128;

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut h = h.clone();
    // Files that state a window of 0 have none.
    let has_chunks = h.windows.n_swa != Some(0);
    h.windows.n_swa = has_chunks.then_some(CHUNK);
    let decoder = Decoder {
        pattern: Pattern::Every(4),
        window: Window::Chunked,
        rope: rope::of_windowed,
        attention,
        feed_forward: |b, h, layer, x, branch| {
            let routing = Routing { gating: Gating::Sigmoid, is_before: true, ..Routing::PLAIN };
            blocks::network_or_experts(b, h, layer, x, branch, routing)
        },
        ..Decoder::LLAMA
    };
    decoder.build(b, &h)
}

fn attention(b: &mut Builder<'_, '_>, spec: AttentionSpec<'_>, x: Value) -> Result<Value, Error> {
    let AttentionSpec { h, layer, choices, rope } = spec;
    let qkv @ Qkv { q, k, .. } = blocks::qkv(b, h, layer, x)?;
    blocks::rotate(b, layer, qkv, rope);
    if rope.is_none() {
        b.scale_by_position(q, Temperature { floor_scale: CHUNK, scale: 0.1, offset: 1.0 });
    } else if h.experts.is_none_or(|experts| experts.n_expert != N_EXPERT_PLAIN) {
        [q, k].into_iter().for_each(|x| b.plain_norm_heads(x, h.norm_rms_eps, layer.d_k));
    }
    Ok(b.attend(qkv, (choices.scores)(h, layer)))
}
