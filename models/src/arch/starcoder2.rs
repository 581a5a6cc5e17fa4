//! StarCoder 2 (Lozhkov et al., 2024, arXiv 2402.19173) and CodeShell (Xie et al., 2024, arXiv
//! 2403.15747): layer norms, biases everywhere, and a
//! network without a gate.

use super::decoder::Decoder;
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder::GPT.build(b, h)
}
