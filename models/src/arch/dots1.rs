//! dots.llm1 (rednote-hilab, 2025, arXiv 2506.05767), Ling 2 (Ling team, 2025, the model cards of
//! Ling-mini-2.0) and Hunyuan 3 (Tencent, 2026).
//!
//! Qwen 3 with experts behind a few layers with one network, and beside a network for all tokens.
//! Sigmoids with a bias choose them; files say by which function (`expert_gating_func`), and if
//! weights are renormalised.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { feed_forward: blocks::gated_network_by_sigmoid, ..Decoder::SPLIT }.build(b, h)
}
