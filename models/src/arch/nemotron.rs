//! Nemotron 4 and Minitron (NVIDIA, 2024, arXiv 2402.16819 and 2407.14679), and Jais 2 (Inception,
//! 2025, the model cards of Jais-2).
//!
//! Layer norms, and a network of squared rectifiers without a gate. Norm weights of GGUF files
//! contain the 1 that Nemotron adds.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { feed_forward: blocks::squared_relu_network, ..Decoder::GPT }.build(b, h)
}
