//! Sizes of a mixture of experts.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use crate::error::Error;

/// Sizes of a mixture of experts.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert!(hparams.experts.is_none()); // one feed-forward network in each layer
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts of a layer.
    pub n_expert: usize,
    /// Experts chosen for a token.
    pub n_used: usize,
    /// Width of each expert.
    pub n_ff: usize,
    /// Width of a network beside them that all tokens go through; 0 if there is none.
    pub n_ff_shared: usize,
}

impl Experts {
    /// Read the sizes, if the file has experts, which are `n_ff` wide unless it states a width of
    /// their own.
    pub(super) fn read(r: &Reader<'_, '_>, n_ff: usize) -> Result<Option<Self>, Error> {
        const WIDTH: &str = "expert_feed_forward_length";
        const SHARED: &str = "expert_shared_feed_forward_length";
        let Some(n_expert) = r.gguf.keys()?.optional::<u32>("expert_count")?.filter(|&n| n > 0) else {
            return Ok(None);
        };
        if n_expert > MAX_LAYERS {
            return Err(r.invalid("expert_count", n_expert, "at most 4096 experts"));
        }
        let (key, n_ff) = match r.optional_count(WIDTH, MAX_WIDTH)? {
            Some(n) => (WIDTH, n),
            None => ("feed_forward_length", n_ff),
        };
        r.product(key, n_expert as usize, n_ff)?;
        let n_used = r.count("expert_used_count", n_expert)?;
        let n_ff_shared = match r.gguf.keys()?.optional::<u32>(SHARED)? {
            Some(n) if n > MAX_WIDTH => return Err(r.invalid(SHARED, n, "at most 2^20")),
            // Most models have none.
            n => n.unwrap_or(0) as usize,
        };
        Ok(Some(Experts { n_expert: n_expert as usize, n_used, n_ff, n_ff_shared }))
    }
}
