//! Q5_0: 32 elements, one scale, 5 bits each.
//!
//! An element is `d * (q - 16)`.
//!
//! ```text
//! byte   0 1   2 .. 5             6        ...   21
//!        d     bits 0 to 31: qh   q0 q16   ...   q15 q31
//! ```
//! The fifth bits stand together, because five bits do not divide a byte.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance};
use super::f16::Half;
use super::search::symmetric;
use super::{bits, range, round};

/// 32 elements in 22 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// The fifth bit of element `i` is bit `i`, little-endian.
    pub qh: [u8; 4],
    /// Element `i` in the low nibble of byte `i`, element `16 + i` in the high one.
    pub qs: [u8; 16],
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let d = self.d.to_f32();
        bits::each_five(&self.qs, self.qh, y, |q| (i32::from(q) - 16) as f32 * d);
    }

    /// Send the element farthest from zero to -16 exactly, so that the scale carries its sign;
    /// round the rest half up.
    fn store(x: &[f32; 32]) -> Self {
        let d = range::farthest(x) / -16.0;
        let id = round::inverse(d);
        let (qs, qh) = bits::fives(x, |x| round::truncate(x * id + 16.5) as u8);
        Block { d: Half::from_f32(d), qh, qs }
    }

    /// Search for the scale.
    fn store_important(x: &[f32; 32], importance: &Importance<'_, 32>) -> Self {
        let mut q = [0; 32];
        let w = importance.weights(0, x, importance.row_mean_square);
        let d = Half::from_f32(symmetric(x, &w, 16, &mut q));
        let (qs, qh) = bits::pack_fives(&q);
        Block { d, qh, qs }
    }
}
