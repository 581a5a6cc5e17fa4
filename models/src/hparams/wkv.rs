//! Sizes of RWKV's layers.

use super::reader::{MAX_LAYERS, MAX_WIDTH, Reader};
use super::{Hparams, LayerHparams};
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
    /// Token shifts of a layer, where the file says so.
    pub n_shift: Option<usize>,
}

impl Hparams {
    /// Return the sizes of RWKV's layers in an architecture with `n_shift` token shifts in each.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none, [`Error::Hparam`] if it states other shifts.
    pub fn wkv_of(&self, n_shift: usize) -> Result<Wkv, Error> {
        let wkv = self.wkv()?;
        match wkv.n_shift {
            Some(n) if n != n_shift => {
                let wanted = "the architecture's: 2 in RWKV, 1 in a transformer";
                Err(self.invalid("token_shift_count", n, wanted))
            }
            _ => Ok(wkv),
        }
    }

    /// Return the heads of keys and values in an architecture that shares each between neighbours.
    ///
    /// # Errors
    /// [`Error::Hparam`] if RWKV's heads cannot share them evenly.
    pub fn wkv_heads_kv(&self, layer: &LayerHparams, wkv: Wkv) -> Result<usize, Error> {
        match layer.n_head_kv {
            0 => Ok(wkv.n_head),
            n if wkv.n_head.is_multiple_of(n) => Ok(n),
            n => Err(self.invalid("attention.head_count_kv", n, "a divisor of the heads of wkv.head_size")),
        }
    }
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
        Ok(Some(Wkv {
            n_head: n_embd / d_head,
            d_head,
            rescale_every_n_layers: every as usize,
            n_shift: r.optional_count("token_shift_count", 2)?,
        }))
    }
}
