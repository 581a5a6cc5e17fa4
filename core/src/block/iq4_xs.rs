//! IQ4_XS: 256 elements in sub-blocks of 32, each with a signed scale of 6 bits; 4 bits an element
//! that choose from the values of IQ4_NL.
//!
//! An element is `d * (s - 32) * VALUES[q]`.
//!
//! ```text
//! byte   0 1   2 3                 4 .. 7                8 .. 135
//!        d     upper bits of s     low nibbles of s      quants: eight times 16 bytes
//! ```
//! 4.25 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::f16::Half;
use super::iq4_nl::VALUES;
use super::search::{codebook, index, squares};
use super::{bits, range, round};

/// 256 elements in 136 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The upper two bits of the scales, sub-block 0 lowest, little-endian.
    pub scales_h: [u8; 2],
    /// The low nibbles of the scales, two a byte.
    pub scales_l: [u8; 4],
    /// Sub-blocks of 16 bytes: element `i` in the low nibble of byte `i`, element `16 + i` in the
    /// high one.
    pub qs: [u8; 128],
}

impl Block {
    /// Return the scale of sub-block `j` (0 to 7), less its offset: `-32..32`.
    pub fn scale(&self, j: usize) -> i32 {
        let low = self.scales_l[j / 2 % 4] >> (j % 2 * 4) & 15;
        let high = u16::from_le_bytes(self.scales_h) >> (j % 8 * 2) & 3;
        i32::from(low) + i32::from(high) * 16 - 32
    }
}

/// Encode a block whose sub-blocks have the scales `fits`.
fn encode(x: &[f32; 256], fits: [f32; 8]) -> Block {
    let d = -range::farthest(&fits) / 32.0;
    let id = round::inverse(d);
    let (mut low, mut high, mut qs) = ([0; 4], 0_u16, [0; 128]);
    let sub_blocks = qs.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<32>().0);
    for (j, ((qs, x), fit)) in sub_blocks.zip(fits).enumerate() {
        let scale = round::nearest(id * fit).clamp(-32, 31);
        let inverse = round::inverse(d * scale as f32);
        *qs = bits::nibbles(x, |x| index(inverse * x, &VALUES) as u8);
        let stored = (scale + 32) as u16;
        low[j / 2] |= ((stored & 15) << (j % 2 * 4)) as u8;
        high |= stored >> 4 << (j * 2);
    }
    Block { d: Half::from_f32(d), scales_h: high.to_le_bytes(), scales_l: low, qs }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let sub_blocks = y.as_chunks_mut::<32>().0.iter_mut().zip(self.qs.as_chunks::<16>().0);
        for (j, (y, qs)) in sub_blocks.enumerate() {
            let d = d * self.scale(j) as f32;
            bits::each_nibble(qs, y, |q| d * f32::from(VALUES[usize::from(q & 15)]));
        }
    }

    /// Search each sub-block, make the scale farthest from zero -32, then round with the scales
    /// before the common one is rounded to half precision.
    fn store(x: &[f32; 256]) -> Self {
        let mut fits = [0.0; 8];
        for (fit, x) in fits.iter_mut().zip(x.as_chunks::<32>().0) {
            *fit = codebook(x, &squares(x), &VALUES);
        }
        encode(x, fits)
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let mean_square = sum_of_squares(x) * (2.0 / 256.0);
        let mut fits = [0.0; 8];
        for (j, (fit, x)) in fits.iter_mut().zip(x.as_chunks::<32>().0).enumerate() {
            *fit = codebook(x, &importance.weights(j, x, mean_square), &VALUES);
        }
        encode(x, fits)
    }
}
