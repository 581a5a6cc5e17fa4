//! Q4_0: 32 elements, one scale, 4 bits each.
//!
//! An element is `d * (q - 8)`.
//!
//! ```text
//! byte   0 1   2        3        ...   17
//!        d     q0 q16   q1 q17   ...   q15 q31      low nibble, high nibble
//! ```

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance};
use super::f16::Half;
use super::search::symmetric;
use super::{bits, range, round};

/// 32 elements in 18 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale.
    pub d: Half,
    /// Element `i` in the low nibble of byte `i`, element `16 + i` in the high one.
    pub qs: [u8; 16],
}

impl Codec<32> for Block {
    fn load(&self, y: &mut [f32; 32]) {
        let d = self.d.to_f32();
        bits::each_nibble(&self.qs, y, |q| (i32::from(q) - 8) as f32 * d);
    }

    /// Send the element farthest from zero to -8 exactly, so that the scale carries its sign; round
    /// the rest half up.
    fn store(x: &[f32; 32]) -> Self {
        let d = range::farthest(x) / -8.0;
        let id = round::inverse(d);
        let qs = bits::nibbles(x, |x| round::truncate(x * id + 8.5) as u8);
        Block { d: Half::from_f32(d), qs }
    }

    /// Search for the scale.
    fn store_important(x: &[f32; 32], importance: &Importance<'_, 32>) -> Self {
        let mut q = [0; 32];
        let w = importance.weights(0, x, importance.row_mean_square);
        let d = Half::from_f32(symmetric(x, &w, 8, &mut q));
        Block { d, qs: bits::pack_nibbles(&q) }
    }
}
