//! Phi-3 and Phi-3.5 (Abdin et al., 2024, arXiv 2404.14219), with one network a layer or with
//! experts, and Phi-4, which files name `phi3` too.
//!
//! Matrices are fused: `attn_qkv` has queries, keys and values, `ffn_up` has the gate's rows before
//! its own. Members for 128K tokens use LongRoPE: divisors of frequencies in `rope_factors_short`
//! and `_long`, and a factor of sines and cosines, `rope.scaling.attn_factor`. Most files name no
//! `rope.scaling.type` for it, so the tensors alone tell. Files state `attention.sliding_window`,
//! but no layer has a window: llama.cpp ignores the key, and so does this file.

use super::{decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::{Builder, Norm},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { rope: rope::long_if_there(b), ..Decoder::SPLIT }.build(b, h)
}

/// Describe a member with experts, whose norms have biases.
pub(super) fn build_experts(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let norm = |h: &Hparams, name| Norm::rms_and_bias(name, h.norm_rms_eps);
    Decoder { norm, rope: rope::long_if_there(b), ..Decoder::SPLIT }.build(b, h)
}
