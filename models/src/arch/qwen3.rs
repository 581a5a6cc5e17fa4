//! Qwen 3 (Yang et al., 2025, arXiv 2505.09388), with one network a layer or with experts, and
//! OpenELM (Mehta et al., 2024, arXiv 2404.14619), whose heads and widths differ by layer.
//!
//! In the place of Qwen 2's biases, queries and keys are normalised head by head (`attn_q_norm`,
//! `attn_k_norm`); heads have a width of their own (`attention.key_length`).

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::SPLIT.build(b, h)
}
