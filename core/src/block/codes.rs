//! Blocks of IQ1, IQ2 and IQ3 as codes: 256 elements that choose from a few values.
//!
//! Files store numbers of grid points and signs. Seen from outside, each element is a *code* that
//! chooses one of sixteen values or fewer, and each 16 elements have a small whole scale; this is
//! what panels hold, so kernels need no grid.

use super::f16::Half;
use super::round::nearest;

/// A super-block of 256 elements `d * UNIT * scale * VALUES[code]`; no product is rounded.
pub trait Codes {
    /// The values that codes choose.
    const VALUES: [i8; 16];
    /// A power of two that makes values and scales whole.
    const UNIT: f32;

    /// Return the scale of the scales.
    fn d(&self) -> Half;

    /// Return the scales of both sub-blocks of 16 elements from `32 j` on, `j` from 0 to 7.
    fn scales(&self, j: usize) -> [i8; 2];

    /// Return the codes of the 32 elements from `32 j` on.
    fn codes(&self, j: usize) -> [u8; 32];
}

/// Write the elements of a block to `y`.
pub fn load<B: Codes>(block: &B, y: &mut [f32; 256]) {
    let d = block.d().to_f32() * B::UNIT;
    for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scales = block.scales(j).map(|scale| d * f32::from(scale));
        for (k, (y, code)) in y.iter_mut().zip(block.codes(j)).enumerate() {
            *y = scales[k / 16] * f32::from(B::VALUES[usize::from(code & 15)]);
        }
    }
}

/// Return the scale `2 s + 1` for the stored scale `s`, at most 15.
pub fn odd(stored: u8) -> i8 {
    2 * (stored & 15) as i8 + 1
}

/// Return the stored scale, at most `largest`, nearest to `scale`, where `2 s + 1` stands for
/// `1 / inverse` times as much.
pub fn stored_scale(scale: f32, inverse: f32, largest: i32) -> u8 {
    nearest(0.5 * (inverse * scale - 1.0)).clamp(0, largest) as u8
}

/// Return the largest of the scales; 0 if there is none above.
pub fn largest(scales: &[f32]) -> f32 {
    scales.iter().fold(0.0, |max, &scale| if scale > max { scale } else { max })
}

/// Return the largest element, compared from the first on.
pub fn max<const S: usize>(x: &[f32; S]) -> f32 {
    x.iter().fold(x[0], |max, &x| if x > max { x } else { max })
}
