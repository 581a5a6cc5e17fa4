//! NVFP4: 64 elements in sub-blocks of 16, each with a scale of 8 bits that is a small float; 4
//! bits an element that are small floats themselves.
//!
//! An element is half of a scale (E4M3 without a sign) times a value of MXFP4, doubled.
//!
//! ```text
//! byte   0 .. 3     4 .. 35
//!        scales     quants: four times 8 bytes, element i in the low nibble, 8 + i in the high one
//! ```
//! 4.5 bits an element in all.

use bytemuck::{Pod, Zeroable};
use half::f16;

use super::codec::Codec;
use super::mxfp4::{DOUBLED, quant};
use super::range;

/// 64 elements in 36 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scales of the sub-blocks: four bits of exponent, three of fraction.
    pub d: [u8; 4],
    /// Sub-blocks of 8 bytes.
    pub qs: [[u8; 8]; 4],
}

impl Block {
    /// Return half of the scale of sub-block `i` (0 to 3), the factor of [`DOUBLED`].
    pub fn half_scale(&self, i: usize) -> f16 {
        half_scale(self.d[i])
    }

    /// Return the quants of the 32 elements from 32j (`j` 0 or 1).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        core::array::from_fn(|k| self.qs[2 * j + k / 16][k % 8] >> (k % 16 / 8 * 4) & 15)
    }
}

/// Return half of the scale that `e` stands for; exact. The largest number, 127, stands for 0.
fn half_scale(e: u8) -> f16 {
    let (exponent, fraction) = (i32::from(e >> 3 & 15), f32::from(e & 7));
    let scale = match (e, exponent) {
        (0 | 127, _) => 0.0,
        (_, 0) => fraction * power_of_two(-10),
        _ => (1.0 + fraction / 8.0) * power_of_two(exponent - 8),
    };
    f16::from_f32(scale)
}

/// Return `2^exponent`, for exponents of normal numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Return the scale nearest to `x`, at least for `x` below 256; ties go away from zero.
fn scale(x: f32) -> u8 {
    if x.is_nan() || x <= 0.0 {
        return 0;
    }
    let bits = x.min(448.0).to_bits();
    let exponent = (bits >> 23) as i32 - 120;
    if exponent <= 0 {
        return (x * 512.0 + 0.5).min(7.0) as u8;
    }
    // The fraction may carry into the exponent. The reference gives the largest scale to all from
    // 256 on.
    let rounded = (exponent << 3) + (bits >> 20 & 7) as i32 + (bits >> 19 & 1) as i32;
    if rounded < 15 << 3 { rounded as u8 } else { 0x7e }
}

impl Codec<64> for Block {
    fn load(&self, y: &mut [f32; 64]) {
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let d = [0, 1].map(|i| self.half_scale(2 * j + i).to_f32());
            let q = self.quants(j);
            *y = core::array::from_fn(|k| f32::from(DOUBLED[usize::from(q[k])]) * d[k / 16]);
        }
    }

    /// Bring the largest magnitude of a sub-block to 6, the largest value.
    fn store(x: &[f32; 64]) -> Self {
        let (mut d, mut qs) = ([0; 4], [[0; 8]; 4]);
        for (i, x) in x.as_chunks::<16>().0.iter().enumerate() {
            d[i] = scale(range::farthest(x).abs() / 6.0);
            let half_scale = half_scale(d[i]).to_f32();
            qs[i] = core::array::from_fn(|k| quant(x[k], half_scale) | quant(x[k + 8], half_scale) << 4);
        }
        Block { d, qs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_below_256_is_nearest_to_itself() {
        for e in 0..15 << 3 {
            let found = half_scale(e).to_f32() * 2.0;
            assert_eq!(scale(found), e, "{found}");
        }
        assert_eq!((scale(f32::NAN), scale(-1.0), scale(256.0)), (0, 0, 0x7e));
        assert_eq!(half_scale(127), f16::ZERO);
    }
}
