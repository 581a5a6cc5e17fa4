//! F16: half precision, little-endian; also the scale in most quantised blocks.
//!
//! 11 bits of precision, exponents from -14 to 15, and subnormal numbers down to 2^-24.

use bytemuck::{Pod, Zeroable};
use half::f16;

use super::codec::Codec;

/// One half-precision number as it lies in a file: two bytes, at any alignment.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Half([u8; 2]);

impl Half {
    /// Return the number with these bits.
    pub fn from_bits(bits: u16) -> Self {
        Half(bits.to_le_bytes())
    }

    /// Return its sixteen bits.
    pub fn bits(self) -> u16 {
        u16::from_le_bytes(self.0)
    }

    /// Return its value; exact.
    pub fn to_f32(self) -> f32 {
        f16::from_le_bytes(self.0).to_f32()
    }

    /// Return the half nearest to `x`, ties to even; a number too large becomes infinite. The bits
    /// are equal on every processor.
    pub fn from_f32(x: f32) -> Self {
        Half(f16::from_f32(x).to_le_bytes())
    }
}

impl Codec<1> for Half {
    fn load(&self, y: &mut [f32; 1]) {
        *y = [self.to_f32()];
    }

    fn store(&[x]: &[f32; 1]) -> Self {
        Half::from_f32(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let half = Half(bits.to_le_bytes());
            let again = Half::from_f32(half.to_f32());
            assert!(again.0 == half.0 || half.to_f32().is_nan() && again.to_f32().is_nan(), "{bits:#06x}");
        }
    }

    #[test]
    fn ties_go_to_even_and_large_numbers_to_infinity() {
        let cases = [
            (1.0 + 1.0 / 2048.0, 0x3c00_u16),
            (1.0 + 3.0 / 2048.0, 0x3c02),
            (65519.996, 0x7bff),
            (65520.0, 0x7c00),
            (-1e30, 0xfc00),
            (2.980_232_2e-8, 0x0000),
            (2.980_232_6e-8, 0x0001),
            (-0.0, 0x8000),
        ];
        for (x, bits) in cases {
            assert_eq!(Half::from_f32(x).0, bits.to_le_bytes(), "{x}");
        }
    }
}
