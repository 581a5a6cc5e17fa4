//! Q2_0: 64 elements, one scale, -1, 0, 1 or 2 each in 2 bits.
//!
//! An element is `d * (q - 1)`.
//!
//! ```text
//! byte   0 1   2 .. 17
//!        d     two bits an element, the first lowest
//! ```
//! 2.25 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::Codec;
use super::f16::Half;
use super::{range, round};

/// 64 elements in 18 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// Two bits an element.
    pub qs: [u8; 16],
}

impl Block {
    /// Return the quants of the 32 elements from 32j (`j` 0 or 1).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        core::array::from_fn(|k| self.qs[8 * j + k / 4] >> (k % 4 * 2) & 3)
    }
}

impl Codec<64> for Block {
    fn load(&self, y: &mut [f32; 64]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *y = self.quants(j).map(|q| (i32::from(q) - 1) as f32 * d);
        }
    }

    /// Make the largest magnitude the scale; round the rest half away from zero.
    fn store(x: &[f32; 64]) -> Self {
        let d = range::farthest(x).abs();
        let id = round::inverse(d);
        let q = x.map(|x| round::truncate(libm::roundf(x * id)).saturating_add(1).clamp(0, 3) as u8);
        let qs = core::array::from_fn(|j| (0..4).map(|k| q[4 * j + k] << (2 * k)).sum());
        Block { d: Half::from_f32(d), qs }
    }
}
