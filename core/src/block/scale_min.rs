//! The scales and minima of Q4_K and Q5_K: eight sub-blocks of 32 elements, 6 bits each.
//!
//! Twelve bytes hold them. For sub-blocks 0 to 3, the scales and then the minima are the lower six
//! bits of the first eight bytes. For sub-blocks 4 to 7, the low nibbles of both are in the last
//! four bytes, and their upper two bits on top of the first eight bytes.

use super::codec::{Importance, sum_of_squares};
use super::f16::Half;
use super::round;
use super::search::{Affine, requantise, unsigned};

/// Return the scale and the minimum of sub-block `j`, `0..64` each.
pub fn unpack(packed: &[u8; 12], j: usize) -> (u8, u8) {
    let (i, byte) = (j % 4, |i: usize| packed[i]);
    if j < 4 {
        return (byte(i) & 63, byte(i + 4) & 63);
    }
    (byte(i + 8) & 15 | byte(i) >> 6 << 4, byte(i + 8) >> 4 | byte(i + 4) >> 6 << 4)
}

/// Add sub-block `j`, whose bits must still be zero.
fn pack(packed: &mut [u8; 12], j: usize, scale: u8, min: u8) {
    let i = j % 4;
    if j < 4 {
        packed[i] |= scale;
        packed[i + 4] |= min;
    } else {
        packed[i + 8] |= scale & 15 | (min & 15) << 4;
        packed[i] |= scale >> 4 << 6;
        packed[i + 4] |= min >> 4 << 6;
    }
}

/// An encoded block before its quants are packed into bytes.
pub struct SubBlocks {
    /// The scale of the scales.
    pub d: Half,
    /// The scale of the minima.
    pub dmin: Half,
    /// Scales and minima.
    pub scales: [u8; 12],
    /// The quants.
    pub q: [u8; 256],
}

/// Encode a block.
///
/// Each sub-block is searched for its best scale and minimum; these are rounded to 6 bits by the
/// largest of each; then the quants are rounded again with the scales as they will be read.
pub fn encode(x: &[f32; 256], search: &Affine) -> SubBlocks {
    let (mut fits, mut q) = ([(0.0, 0.0); 8], [0; 256]);
    for ((fit, q), x) in fits.iter_mut().zip(q.as_chunks_mut::<32>().0).zip(x.as_chunks::<32>().0) {
        *fit = search.run(x, &weights(x), q);
    }
    let largest = |a: f32, b: f32| if b > a { b } else { a };
    let max_scale = fits.iter().map(|fit| fit.0).fold(0.0, largest);
    let max_min = fits.iter().map(|fit| fit.1).fold(0.0, largest);

    let six_bits = |x: f32, max: f32| {
        let inverse = if max > 0.0 { 63.0 / max } else { 0.0 };
        (round::nearest(inverse * x) as u8).min(63)
    };
    let mut scales = [0; 12];
    for (j, (scale, min)) in fits.into_iter().enumerate() {
        pack(&mut scales, j, six_bits(scale, max_scale), six_bits(min, max_min));
    }

    finish(x, scales, (max_scale / 63.0, max_min / 63.0), q, search.largest)
}

/// Encode a block whose errors matter as `importance` says, to quants up to `largest`.
///
/// The scales of scales and of minima are searched too; those of sub-blocks with large weights
/// count more.
pub fn encode_important(x: &[f32; 256], importance: &Importance<'_, 256>, largest: u8) -> SubBlocks {
    let search = Affine::weighted(largest);
    let mean_square = 2.0 * sum_of_squares(x) / 256.0;
    let (mut fits, mut mins, mut sums, mut q) = ([0.0; 8], [0.0; 8], [0.0; 8], [0; 256]);
    for (j, (q, x)) in q.as_chunks_mut::<32>().0.iter_mut().zip(x.as_chunks::<32>().0).enumerate() {
        let w = importance.weights(j, x, mean_square);
        sums[j] = w.iter().fold(0.0, |sum, w| sum + w);
        (fits[j], mins[j]) = search.run(x, &w, q);
    }
    let (mut scale_q, mut min_q) = ([0; 8], [0; 8]);
    let d = unsigned(&fits, &sums, 63, &mut scale_q);
    let dmin = unsigned(&mins, &sums, 63, &mut min_q);
    let mut scales = [0; 12];
    for (j, (scale, min)) in scale_q.into_iter().zip(min_q).enumerate() {
        pack(&mut scales, j, scale.min(63), min.min(63));
    }
    finish(x, scales, (d, dmin), q, largest)
}

/// Round the quants again with the scales as stored.
fn finish(x: &[f32; 256], scales: [u8; 12], d: (f32, f32), mut q: [u8; 256], largest: u8) -> SubBlocks {
    let (d, dmin) = (Half::from_f32(d.0), Half::from_f32(d.1));
    for (j, (q, x)) in q.as_chunks_mut::<32>().0.iter_mut().zip(x.as_chunks::<32>().0).enumerate() {
        let (scale, min) = unpack(&scales, j);
        requantise(x, q, d.to_f32() * f32::from(scale), dmin.to_f32() * f32::from(min), largest);
    }
    SubBlocks { d, dmin, scales, q }
}

/// Return the weight of an error in each element: its magnitude plus the root mean square of the
/// sub-block.
fn weights(x: &[f32; 32]) -> [f32; 32] {
    let squares = x.iter().fold(0.0, |sum, x| sum + x * x);
    let rms = libm::sqrtf(squares / 32.0);
    x.map(|x| rms + x.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_minima_come_back() {
        let wanted: [(u8, u8); 8] =
            [(63, 1), (2, 60), (33, 34), (0, 63), (17, 48), (63, 63), (16, 15), (5, 32)];
        let mut packed = [0; 12];
        for (j, (scale, min)) in wanted.into_iter().enumerate() {
            pack(&mut packed, j, scale, min);
        }
        assert_eq!(core::array::from_fn(|j| unpack(&packed, j)), wanted);
    }
}
