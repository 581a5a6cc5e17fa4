//! How positions rotate queries and keys.

use super::{MAX_WIDTH, Reader};
use crate::{
    error::Error,
    graph::{Builder, RopeId},
};
use alloc::vec::Vec;
use backstitch_core::rope::{Pairs, Rope, Yarn};

/// How positions rotate queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeParams {
    /// Dimensions of a head that rotate.
    pub n_rot: usize,
    /// Base of the geometric series of frequencies.
    pub freq_base: f32,
    /// How frequencies are changed for contexts longer than trained.
    pub scaling: RopeScaling,
    /// `rope.scaling.finetuned`, which some architectures read as whether anything rotates at all.
    pub finetuned: Option<bool>,
}

/// How frequencies are changed for contexts longer than trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by `factor`.
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
        /// Factor of sines and cosines on top of YaRN's own.
        attn_factor: f32,
    },
}

/// Declares a rotation to the builder.
pub(super) fn declare(b: &mut Builder<'_, '_>, pairs: Pairs, rope: RopeParams) -> Result<RopeId, Error> {
    let RopeParams { n_rot, freq_base, scaling, .. } = rope;
    let plain = Rope { n_rot, pairs, freq_base, freq_scale: 1.0, attn_factor: 1.0, yarn: None };
    let rope = match scaling {
        RopeScaling::None => plain,
        RopeScaling::Linear { factor } => Rope { freq_scale: 1.0 / factor, ..plain },
        RopeScaling::Yarn { factor, n_ctx_orig, attn_factor } => {
            let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, n_ctx_orig };
            Rope { freq_scale: 1.0 / factor, attn_factor, yarn: Some(yarn), ..plain }
        }
    };
    b.rope(rope, "rope_freqs.weight")
}

/// Reads how positions rotate; `d_k` is the width of a key.
pub(super) fn read(r: &Reader<'_, '_>, d_k: usize) -> Result<RopeParams, Error> {
    const DIMENSIONS: &str = "rope.dimension_count";
    let n_rot = match r.optional_count(DIMENSIONS, MAX_WIDTH)? {
        // Without heads there is nothing to rotate, whatever the file says.
        Some(n) if d_k > 0 => n,
        _ => d_k,
    };
    if n_rot > d_k || n_rot % 2 != 0 {
        return Err(r.invalid(DIMENSIONS, n_rot, "an even number up to the width of a key"));
    }
    let factor =
        r.positive_f32("rope.scaling.factor")?.or(r.positive_f32("rope.scale_linear")?).unwrap_or(1.0);
    let kind = r.gguf.keys()?.optional::<&str>("rope.scaling.type")?;
    let scaling = match kind {
        // Files from before the key existed state a factor alone.
        None | Some("linear") if factor != 1.0 => RopeScaling::Linear { factor },
        None | Some("none" | "linear") => RopeScaling::None,
        Some("yarn") => RopeScaling::Yarn {
            factor,
            n_ctx_orig: match r.optional_count("rope.scaling.original_context_length", i32::MAX as u32)? {
                Some(n) => n as u32,
                None => r.count("context_length", i32::MAX as u32)? as u32,
            },
            attn_factor: r.positive_f32("rope.scaling.attn_factor")?.unwrap_or(1.0),
        },
        Some(other) => return Err(r.invalid("rope.scaling.type", other, "none, linear or yarn")),
    };
    let freq_base = r.positive_f32("rope.freq_base")?.unwrap_or(10_000.0);
    let finetuned = r.gguf.keys()?.optional("rope.scaling.finetuned")?;
    Ok(RopeParams { n_rot, freq_base, scaling, finetuned })
}

/// Numbers of pairs that turn by each of up to four positions, if the file states any.
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
