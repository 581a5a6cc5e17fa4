//! MXFP4: 32 elements, a power of two as scale, 4 bits each that are small floats themselves.
//!
//! The elements are E2M1 of the OCP Microscaling formats: a sign, two bits of exponent, one of
//! fraction; the scale is E8M0, an exponent alone.
//!
//! ```text
//! byte   0   1        2        ...   16
//!        e   q0 q16   q1 q17   ...   q15 q31        low nibble, high nibble
//! ```
//! 4.25 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;
use super::{bits, range, round};

/// Twice the value of each quant, so that all are whole numbers; the scale is halved in turn.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 elements in 17 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale's exponent, with a bias of 127.
    pub e: u8,
    /// Element `i` in the low nibble of byte `i`, element `16 + i` in the high one: sign, two bits
    /// exponent, one bit fraction.
    pub qs: [u8; 16],
}

/// Return `2^(e - 128)`, half of the scale that `e` stands for; subnormal for the two smallest.
fn half_scale(e: u8) -> f32 {
    match e {
        0..2 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

/// Return the quant whose value is nearest to `x`, the first of equals.
pub fn quant(x: f32, d: f32) -> u8 {
    let (mut best, mut least) = (0, x.abs());
    for (i, &value) in DOUBLED.iter().enumerate() {
        let error = (f32::from(value) * d - x).abs();
        if error < least {
            (best, least) = (i as u8, error);
        }
    }
    best
}

impl Block {
    /// Return the factor of [`DOUBLED`].
    pub fn half_scale(&self) -> f32 {
        half_scale(self.e)
    }
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let d = half_scale(self.e);
        bits::each_nibble(&self.qs, y, |q| f32::from(DOUBLED[usize::from(q & 15)]) * d);
    }

    /// Choose the power of two that brings the element farthest from zero to between 4 and 8 (6 is
    /// the largest value). The logarithm is rounded to single precision before its fraction is
    /// dropped, as in the reference: just below a power of two that gives the next scale.
    fn store(x: &[f32; 32]) -> Self {
        let far = range::farthest(x).abs();
        let log = libm::log2(f64::from(far)) as f32;
        let e = if far > 0.0 { round::truncate(libm::floorf(log) + 125.0) as u8 } else { 0 };
        let d = half_scale(e);
        Block { e, qs: bits::nibbles(x, |x| quant(x, d)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_two_down_to_the_subnormals() {
        assert_eq!((half_scale(128), half_scale(127)), (1.0, 0.5));
        for e in 0..255 {
            assert_eq!(half_scale(e) * 2.0, half_scale(e + 1), "{e}");
        }
    }

    #[test]
    fn every_value_of_the_format_survives() {
        let x = core::array::from_fn(|i| f32::from(DOUBLED[i % 16]) * 0.25);
        let mut y = [0.0; 32];
        Block::store(&x).load(&mut y);
        assert_eq!(x, y);
    }
}
