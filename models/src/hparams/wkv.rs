//! Sizes of RWKV's layers.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use crate::error::Error;

/// Sizes of RWKV's layers.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert!(hparams.wkv.is_none()); // a transformer
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wkv {
    /// Heads.
    pub n_head: usize,
    /// Keys and values of a head.
    pub d_head: usize,
    /// Layers after which the residual stream is halved, again and again; the weights of the layers
    /// behind make up for it. 0 for never.
    pub rescale_every_n_layers: usize,
}

impl Wkv {
    /// Read the sizes, if the file has a head size.
    pub(super) fn read(r: &Reader<'_, '_>, n_embd: usize) -> Result<Option<Self>, Error> {
        const HEAD_SIZE: &str = "wkv.head_size";
        let Some(d_head) = r.optional_count(HEAD_SIZE, MAX_WIDTH)? else { return Ok(None) };
        if !n_embd.is_multiple_of(d_head) {
            return Err(r.invalid(HEAD_SIZE, d_head, "a divisor of embedding_length"));
        }
        // The state of a layer.
        r.product(HEAD_SIZE, n_embd, d_head)?;
        // Files that do not rescale lack the key.
        let every = r.gguf.keys()?.optional::<u32>("rescale_every_n_layers")?.unwrap_or(0);
        if every > MAX_LAYERS {
            return Err(r.invalid("rescale_every_n_layers", every, "at most 4096 layers"));
        }
        if let Some(n) = r.gguf.keys()?.optional::<u32>("token_shift_count")?.filter(|&n| n != 2) {
            return Err(r.invalid("token_shift_count", n, "2: one in each half of a layer"));
        }
        Ok(Some(Wkv { n_head: n_embd / d_head, d_head, rescale_every_n_layers: every as usize }))
    }
}
