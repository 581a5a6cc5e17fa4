//! Q1_0: 128 elements, one scale, a sign each.
//!
//! An element is `d` or `-d`.
//!
//! ```text
//! byte   0 1   2 .. 17
//!        d     one bit an element, the first lowest; set for `d`
//! ```
//! 1.125 bits an element in all. Loaded into the panels of Q2_0, which hold the same values.

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;
use super::f16::Half;

/// 128 elements in 18 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// One bit an element.
    pub qs: [u8; 16],
}

impl Block {
    /// Return the bits of the 32 elements from 32j (`j` from 0 to 3).
    pub fn bits(&self, j: usize) -> [u8; 32] {
        core::array::from_fn(|k| self.qs[4 * j + k / 8] >> (k % 8) & 1)
    }
}

impl Codec<128> for Block {
    fn load(&self, y: &mut [f32; 128]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *y = self.bits(j).map(|bit| if bit == 1 { d } else { -d });
        }
    }

    /// Make the mean of the magnitudes the scale.
    fn store(x: &[f32; 128]) -> Self {
        let sum = x.iter().fold(0.0, |sum, x| sum + x.abs());
        let bit = |(i, &x): (usize, &f32)| u8::from(x >= 0.0) << i;
        let qs = core::array::from_fn(|j| x[8 * j..8 * j + 8].iter().enumerate().map(bit).sum());
        Block { d: Half::from_f32(sum / 128.0), qs }
    }
}
