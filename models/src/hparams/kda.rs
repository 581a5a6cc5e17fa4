//! Sizes of Kimi delta attention.

use super::reader::{MAX_TAPS, MAX_WIDTH, Reader};
use super::{Hparams, LayerHparams};
use crate::error::Error;

const HEAD_DIM: &str = "kda.head_dim";

/// Sizes of Kimi delta attention (Kimi team, 2025, arXiv 2510.26692).
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert!(hparams.kda.is_none()); // a transformer
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kda {
    /// Keys and values of a head.
    pub d_head: usize,
    /// Taps of the convolutions of queries, keys and values.
    pub d_conv: usize,
}

impl Kda {
    /// Read the sizes, if the file has a head size.
    pub(super) fn read(r: &Reader<'_, '_>) -> Result<Option<Self>, Error> {
        let Some(d_head) = r.optional_count(HEAD_DIM, MAX_WIDTH)? else { return Ok(None) };
        Ok(Some(Kda { d_head, d_conv: r.count("ssm.conv_kernel", MAX_TAPS)? }))
    }
}

impl Hparams {
    /// Return the sizes of Kimi delta attention in a layer of an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none, [`Error::Hparam`] if the layer has no heads or
    /// its state is beyond reason.
    pub fn kda(&self, layer: &LayerHparams) -> Result<Kda, Error> {
        let kda = self.kda.ok_or_else(|| self.missing(HEAD_DIM))?;
        // u64: the product may not fit a 32-bit usize. Two factors of 2^20 leave room for a third.
        let width = layer.n_head as u64 * kda.d_head as u64;
        match width.saturating_mul(kda.d_head as u64) {
            1..=0x1000_0000 => Ok(kda),
            _ => Err(self.invalid(HEAD_DIM, kda.d_head, "a state of 1 to 2^28 numbers in all heads")),
        }
    }
}
