//! Q4_1: 32 elements, a scale and a minimum, 4 bits each.
//!
//! An element is `d * q + m`.
//!
//! ```text
//! byte   0 1   2 3   4        ...   19
//!        d     m     q0 q16   ...   q15 q31         low nibble, high nibble
//! ```
//! With an offset of its own, a block whose elements share a sign wastes no quants on the other.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance};
use super::f16::Half;
use super::search::Affine;
use super::{bits, range, round};

/// 32 elements in 20 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// The minimum.
    pub m: Half,
    /// Element `i` in the low nibble of byte `i`, element `16 + i` in the high one.
    pub qs: [u8; 16],
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        bits::each_nibble(&self.qs, y, |q| f32::from(q) * d + m);
    }

    /// Send the smallest element to 0 and the largest to 15; round the rest half up.
    fn store(x: &[f32; 32]) -> Self {
        let (min, max) = range::min_max(x);
        let d = (max - min) / 15.0;
        let id = round::inverse(d);
        let qs = bits::nibbles(x, |x| round::truncate((x - min) * id + 0.5) as u8);
        Block { d: Half::from_f32(d), m: Half::from_f32(min), qs }
    }

    /// Search for the scale and the minimum.
    fn store_important(x: &[f32; 32], importance: &Importance<'_, 32>) -> Self {
        let mut q = [0; 32];
        let w = importance.weights(0, x, importance.row_mean_square);
        let (d, min) = Affine::weighted(15).run(x, &w, &mut q);
        Block { d: Half::from_f32(d), m: Half::from_f32(-min), qs: bits::pack_nibbles(&q) }
    }
}
