//! OLMo 2 and 3 (OLMo team, 2025, arXiv 2501.00656).
//!
//! Attention and network read the stream as it is; what they add is normalised. Queries and keys
//! are normalised as wholes, not head by head. OLMo 3 has three layers with a window, whose
//! rotation is not stretched, then one without.

use super::{blocks, decoder::Decoder, rope};
use crate::{
    error::Error,
    graph::Builder,
    hparams::{Hparams, Pattern},
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let decoder = Decoder {
        attn_norm: None,
        post_attn_norm: Some("post_attention_norm"),
        ffn_norm: None,
        post_ffn_norm: Some("post_ffw_norm"),
        head_norm: |h, _, name| blocks::rms_norm(h, name),
        pattern: Pattern::Every(4),
        rope: rope::stretched_where_full,
        ..Decoder::SPLIT
    };
    decoder.build(b, h)
}
