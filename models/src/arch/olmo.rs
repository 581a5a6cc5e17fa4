//! OLMo of 2024 (Groeneveld et al., arXiv 2402.00838): layer norms without weights. Queries, keys
//! and values are held within `attention.clamp_kqv`.

use super::{blocks, decoder::Decoder};
use crate::{error::Error, graph::Builder, hparams::Hparams};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    Decoder { norm: |h, name| blocks::layer_norm(h, name).bare(), ..Decoder::LLAMA }.build(b, h)
}
