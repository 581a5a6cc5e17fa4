//! BF16: the upper half of an f32, little-endian.
//!
//! 8 bits of precision and the exponents of an f32: widening is a shift, and nothing overflows that
//! an f32 holds.

use bytemuck::{Pod, Zeroable};
use half::bf16;

use super::codec::Codec;

/// One element.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Block([u8; 2]);

impl Codec<1> for Block {
    fn load(&self, y: &mut [f32; 1]) {
        *y = [bf16::from_le_bytes(self.0).to_f32()];
    }

    /// Round to nearest, ties to even; NaNs become quiet.
    fn store(&[x]: &[f32; 1]) -> Self {
        Block(bf16::from_f32(x).to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let (block, mut y) = (Block(bits.to_le_bytes()), [0.0]);
            block.load(&mut y);
            assert!(Block::store(&y).0 == block.0 || y[0].is_nan(), "{bits:#06x}");
        }
    }

    #[test]
    fn ties_go_to_even() {
        for (x, wanted) in [(0x3f80_8000_u32, 0x3f80_u16), (0x3f81_8000, 0x3f82), (0x7f7f_ffff, 0x7f80)] {
            assert_eq!(Block::store(&[f32::from_bits(x)]).0, wanted.to_le_bytes(), "{x:#010x}");
        }
    }
}
