//! Rotation of queries and keys by position.

use super::reader::{MAX_WIDTH, Reader};
use crate::error::Error;
use alloc::vec::Vec;

/// Rotation of queries and keys by position, as far as it is alike in all layers. Dimensions and
/// frequencies are in [`LayerHparams`](super::LayerHparams).
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, RopeScaling, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert_eq!(hparams.rope.scaling, RopeScaling::None);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeParams {
    /// The change of frequencies for contexts longer than trained.
    pub scaling: RopeScaling,
    /// Factor of sines and cosines, on top of YaRN's own.
    pub attn_factor: f32,
    /// `rope.scaling.finetuned`; in files of some architectures it tells if anything rotates at
    /// all.
    pub finetuned: Option<bool>,
    /// Positions that the model was trained with before its rotation was stretched.
    pub n_ctx_orig: u32,
    /// Growth of attention scores with the logarithm of the stretch, where an architecture says so.
    pub yarn_log_multiplier: f32,
}

/// The change of frequencies for contexts longer than trained.
///
/// # Example
/// ```
/// use backstitch_models::RopeScaling;
///
/// // 32768 tokens in training, four times as many in use.
/// let scaling =
///     RopeScaling::Yarn { factor: 4.0, n_ctx_orig: 32768, beta_fast: 32.0, beta_slow: 1.0 };
/// assert_ne!(scaling, RopeScaling::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// No change.
    None,
    /// All frequencies are divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// YaRN (Peng et al., 2023, arXiv 2309.00071): slow frequencies are divided, fast ones kept.
    Yarn {
        /// The divisor.
        factor: f32,
        /// Context length before the change.
        n_ctx_orig: u32,
        /// Frequencies that turn more often than this in that context are kept.
        beta_fast: f32,
        /// Frequencies that turn less often than this in that context are divided by all of
        /// `factor`.
        beta_slow: f32,
    },
    /// LongRoPE (Ding et al., 2024, arXiv 2402.13753): each frequency has a divisor, one in
    /// contexts of the original length and another in longer ones. The file has them as tensors.
    Long {
        /// The longest context with the first divisors.
        n_ctx_orig: u32,
    },
}

impl RopeParams {
    pub(super) fn read(r: &Reader<'_, '_>) -> Result<Self, Error> {
        let finetuned = r.gguf.keys()?.optional("rope.scaling.finetuned")?;
        Ok(RopeParams {
            scaling: RopeScaling::read(r)?,
            // Whatever the type of the scaling: files with divisors of frequencies may name none.
            attn_factor: r.positive_f32("rope.scaling.attn_factor")?.unwrap_or(1.0),
            finetuned,
            n_ctx_orig: n_ctx_orig(r)?,
            yarn_log_multiplier: r.optional_f32("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0),
        })
    }
}

/// Return the positions of the training, unless the file states those before a stretch.
pub(super) fn n_ctx_orig(r: &Reader<'_, '_>) -> Result<u32, Error> {
    match r.optional_count("rope.scaling.original_context_length", i32::MAX as u32)? {
        Some(n) => Ok(n as u32),
        None => r.count("context_length", i32::MAX as u32).map(|n| n as u32),
    }
}

impl RopeScaling {
    fn read(r: &Reader<'_, '_>) -> Result<Self, Error> {
        let own = r.positive_f32("rope.scaling.factor")?;
        let factor = own.or(r.positive_f32("rope.scale_linear")?).unwrap_or(1.0);
        match r.gguf.keys()?.optional::<&str>("rope.scaling.type")? {
            // Files from before the key existed state a factor alone.
            None | Some("linear") if factor != 1.0 => Ok(RopeScaling::Linear { factor }),
            None | Some("none" | "linear") => Ok(RopeScaling::None),
            Some("yarn") => Ok(RopeScaling::Yarn {
                factor,
                n_ctx_orig: n_ctx_orig(r)?,
                beta_fast: r.optional_f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: r.optional_f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            }),
            Some("longrope") => Ok(RopeScaling::Long { n_ctx_orig: n_ctx_orig(r)? }),
            Some(other) => Err(r.invalid("rope.scaling.type", other, "none, linear, yarn or longrope")),
        }
    }
}

/// Read the numbers of pairs that turn by each of up to four coordinates, if the file states any.
pub(super) fn sections(r: &Reader<'_, '_>) -> Result<Option<[usize; 4]>, Error> {
    const SECTIONS: &str = "rope.dimension_sections";
    let Some(found) = r.gguf.keys()?.optional::<Vec<u32>>(SECTIONS)? else { return Ok(None) };
    let mut sections = [0; 4];
    let fits = found.len() <= 4 && found.iter().all(|&n| n <= MAX_WIDTH) && found.iter().any(|&n| n > 0);
    if !fits {
        return Err(r.invalid(
            SECTIONS,
            alloc::format!("{found:?}"),
            "up to four numbers of pairs, not all 0",
        ));
    }
    sections.iter_mut().zip(found).for_each(|(section, n)| *section = n as usize);
    Ok(Some(sections))
}
