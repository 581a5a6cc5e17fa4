//! Sizes of multi-head latent attention.

use super::reader::{MAX_WIDTH, Reader};
use crate::error::Error;

/// Sizes of multi-head latent attention (DeepSeek-AI, 2024, arXiv 2405.04434): keys and values are
/// made of one compressed row a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mla {
    /// Width of compressed queries; none: queries are not compressed.
    pub q_rank: Option<usize>,
    /// Width of the compressed keys and values.
    pub kv_rank: usize,
    /// Width of a head's queries and keys, rotated part included.
    pub d_k: usize,
    /// Width of a head's values.
    pub d_v: usize,
    /// True if cells hold the compressed rows, and matrices of each head lie on the queries' side
    /// and behind the values; false if cells hold the keys and values of all heads.
    pub is_absorbed: bool,
}

impl Mla {
    /// Read the sizes, if the file has compressed keys and values. No layer has more than `n_head`
    /// heads.
    pub(super) fn read(r: &Reader<'_, '_>, n_head: usize) -> Result<Option<Self>, Error> {
        const RANK: &str = "attention.kv_lora_rank";
        const ABSORBED: &str = "attention.key_length_mla";
        let Some(kv_rank) = r.optional_count(RANK, MAX_WIDTH)? else { return Ok(None) };
        r.product(RANK, n_head, kv_rank)?;
        let d_k = r.optional_count(ABSORBED, MAX_WIDTH)?;
        let length = |own, usual| {
            let (key, n) = match r.optional_count(own, MAX_WIDTH)? {
                Some(n) => (own, n),
                None => (usual, r.count(usual, MAX_WIDTH)?),
            };
            r.product(key, n_head, n).map(|()| n)
        };
        Ok(Some(Mla {
            q_rank: r.optional_count("attention.q_lora_rank", MAX_WIDTH)?,
            kv_rank,
            d_k: length(ABSORBED, "attention.key_length")?,
            d_v: length("attention.value_length_mla", "attention.value_length")?,
            is_absorbed: d_k.is_some(),
        }))
    }
}
