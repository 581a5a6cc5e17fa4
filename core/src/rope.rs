//! Rotary position embedding (RoPE; Su et al., 2021, arXiv 2104.09864): the angles by which
//! dimensions turn with the position.
//!
//! A [`Rope`] describes the rotation. [`Rope::frequencies`] gives, once a model, the angle of each
//! pair for one step of position, with all scaling (linear, by factors, YaRN) worked in.
//! [`Rope::angles`] gives, once a token, a row of cosines and sines. The kernel
//! [`rotate`](crate::KernelSet::rotate) applies that row to the heads of any number of layers.
//! Angles are computed in `f64`, so that far positions lose nothing, and depend on position and
//! dimension only.
//!
//! [`Rope::shift_keys`] is the K-shift: it rotates keys that are in the cache already, when their
//! positions move.

pub use crate::kernels::rotate::Pairs;

use crate::cell::{BLOCK_CELLS, CellLayout};
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use core::f64::consts::TAU;

/// YaRN context extension (Peng et al., "YaRN: Efficient Context Window Extension of Large Language
/// Models", 2023).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// The part of the extrapolated angle that is mixed in; 1 is YaRN as published.
    pub ext_factor: f32,
    /// Dimensions that turn more often than this in the original context are extrapolated.
    pub beta_fast: f32,
    /// Dimensions that turn less often than this in the original context are interpolated.
    pub beta_slow: f32,
    /// Context length of the original training.
    pub n_ctx_orig: u32,
}

/// A rotation: the parameters of one model, or of one kind of its layers.
///
/// ```
/// use backstitch_core::KernelSet;
/// use backstitch_core::rope::{Pairs, Rope};
///
/// let rope = Rope {
///     n_rot: 2,
///     pairs: Pairs::Adjacent,
///     freq_base: 10_000.0,
///     freq_scale: 1.0,
///     attn_factor: 1.0,
///     yarn: None,
/// };
/// // Once a model, and once a token:
/// let mut frequencies = [0.0; 1];
/// rope.frequencies(&[], &mut frequencies)?;
/// let mut angles = vec![0.0; rope.row_len()];
/// rope.angles(&frequencies, 0, &mut angles)?;
///
/// let mut head = [3.0, 4.0];
/// (KernelSet::scalar().rotate)(&mut head, 2, rope.pairs, &angles);
/// assert_eq!(head, [3.0, 4.0], "position 0 turns nothing");
/// # Ok::<(), backstitch_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Dimensions of a head that turn, from its start; even.
    pub n_rot: usize,
    /// The dimensions that turn together.
    pub pairs: Pairs,
    /// Base of the geometric series of frequencies.
    pub freq_base: f32,
    /// Factor of all angles: 1 / (linear scaling factor); 1 for none.
    pub freq_scale: f32,
    /// Factor of all cosines and sines; 1 for none.
    pub attn_factor: f32,
    /// YaRN, if the model uses it.
    pub yarn: Option<Yarn>,
}

impl Rope {
    /// Return the length of a row of angles, `[2, n_rot]`: cosines, then signed sines.
    pub const fn row_len(&self) -> usize {
        2 * self.n_rot
    }

    /// Write the angle of each pair for one step of position, in radians, to `out`, `[n_rot / 2]`.
    ///
    /// `factors` divide the frequencies (Llama 3's scaling, longrope): `[n_rot / 2]`, or empty for
    /// none.
    ///
    /// # Errors
    /// [`Error::Length`] if a slice has another length; [`Error::Ragged`] if `n_rot` is odd.
    pub fn frequencies(&self, factors: &[f32], out: &mut [f64]) -> Result<(), Error> {
        let n_pairs = self.n_pairs()?;
        length("frequencies", out.len(), n_pairs)?;
        if !factors.is_empty() {
            length("frequency factors", factors.len(), n_pairs)?;
        }
        let mix = self.yarn.map(|yarn| (yarn, self.ramp_ends(&yarn)));
        for (i, out) in out.iter_mut().enumerate() {
            let exponent = -2.0 * i as f64 / self.n_rot as f64;
            let factor = if factors.is_empty() { 1.0 } else { f64::from(factors[i]) };
            let plain = libm::pow(self.freq_base.into(), exponent) / factor;
            let scaled = plain * f64::from(self.freq_scale);
            *out = match mix {
                Some((yarn, ends)) => {
                    let share = ramp(ends, i) * f64::from(yarn.ext_factor);
                    scaled * (1.0 - share) + plain * share
                }
                None => scaled,
            };
        }
        Ok(())
    }

    /// Write cosines and signed sines at position `pos` to `row`, `[2, n_rot]`, as the kernel
    /// `rotate` takes them.
    ///
    /// `frequencies` come from [`Rope::frequencies`].
    ///
    /// # Errors
    /// [`Error::Length`] if a slice has another length; [`Error::Ragged`] if `n_rot` is odd.
    pub fn angles(&self, frequencies: &[f64], pos: i32, row: &mut [f32]) -> Result<(), Error> {
        self.fill(frequencies, pos, self.amplitude(), row)
    }

    /// Shift the keys of some cells of one block by `delta` positions; keys are rounded to their
    /// stored type again.
    ///
    /// Rotations add up, so a key at position p that is turned by `delta` more is the key at `p +
    /// delta`, but for the rounding. `block` holds the bytes of one block, bit i of `cells` chooses
    /// cell i, `scratch` holds at least `row_len() + n_head_kv * d_k` floats. Allocates nothing;
    /// costs about as much as storing the keys.
    ///
    /// # Errors
    /// [`Error::Length`] if a slice has another length; [`Error::Ragged`] if `n_rot` is odd.
    /// Nothing was changed then.
    #[expect(clippy::too_many_arguments, reason = "what, where, how far, and with what")]
    pub fn shift_keys(
        &self,
        set: &KernelSet,
        frequencies: &[f64],
        layout: &CellLayout,
        block: &mut [u8],
        cells: u32,
        delta: i32,
        scratch: &mut [f32],
    ) -> Result<(), Error> {
        length("block", block.len(), layout.block_bytes())?;
        let n_keys = layout.n_head_kv * layout.d_k;
        let (found, wanted) = (scratch.len(), self.row_len() + n_keys);
        let scratch = scratch.get_mut(..wanted).ok_or(Error::Length { what: "scratch", found, wanted })?;
        let (angles, keys) = scratch.split_at_mut(self.row_len());
        self.fill(frequencies, delta, 1.0, angles)?;
        for cell in (0..BLOCK_CELLS).filter(|cell| cells >> cell & 1 == 1) {
            layout.load_k(block, cell, keys);
            (set.rotate)(keys, layout.d_k, self.pairs, angles);
            layout.store_k(block, cell, keys);
        }
        Ok(())
    }

    /// Return true if rotated queries and keys are as long as before: stretched rotations may
    /// lengthen them.
    pub fn keeps_length(&self) -> bool {
        (self.amplitude() - 1.0).abs() < 1e-6
    }

    fn n_pairs(&self) -> Result<usize, Error> {
        match self.n_rot % 2 {
            0 => Ok(self.n_rot / 2),
            _ => Err(Error::Ragged { what: "n_rot", found: self.n_rot, block: 2 }),
        }
    }

    /// Return the factor of cosines and sines; YaRN raises it with the extension.
    fn amplitude(&self) -> f64 {
        let attn_factor = f64::from(self.attn_factor);
        match self.yarn {
            Some(yarn) if yarn.ext_factor != 0.0 => {
                attn_factor * (1.0 - 0.1 * libm::log(self.freq_scale.into()))
            }
            _ => attn_factor,
        }
    }

    fn fill(&self, frequencies: &[f64], pos: i32, amplitude: f64, row: &mut [f32]) -> Result<(), Error> {
        length("frequencies", frequencies.len(), self.n_pairs()?)?;
        length("row of angles", row.len(), self.row_len())?;
        let (cosines, sines) = row.split_at_mut(self.n_rot);
        for (i, frequency) in frequencies.iter().enumerate() {
            let (sin, cos) = libm::sincos(f64::from(pos) * frequency);
            let (sin, cos) = ((sin * amplitude) as f32, (cos * amplitude) as f32);
            let (first, second) = match self.pairs {
                Pairs::Adjacent => (2 * i, 2 * i + 1),
                Pairs::Split => (i, i + self.n_rot / 2),
            };
            (cosines[first], cosines[second]) = (cos, cos);
            (sines[first], sines[second]) = (-sin, sin);
        }
        Ok(())
    }

    /// Return the pairs between which YaRN passes from extrapolation to interpolation.
    fn ramp_ends(&self, yarn: &Yarn) -> [f64; 2] {
        let pair = |turns: f32| {
            let length = f64::from(yarn.n_ctx_orig) / (f64::from(turns) * TAU);
            self.n_rot as f64 * libm::log(length) / (2.0 * libm::log(self.freq_base.into()))
        };
        let first = libm::floor(pair(yarn.beta_fast)).max(0.0);
        let last = libm::ceil(pair(yarn.beta_slow)).min(self.n_rot as f64 - 1.0);
        [first, last]
    }
}

/// Return 1 up to pair `first`, 0 from pair `last`, and a linear ramp between.
fn ramp([first, last]: [f64; 2], i: usize) -> f64 {
    let y = (i as f64 - first) / (last - first).max(0.001);
    1.0 - y.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
