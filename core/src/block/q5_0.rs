//! Q5_0: 32 elements, one scale, 5 bits each: `d * (q - 16)`.

use bytemuck::{Pod, Zeroable};

use super::f16::Half;
use super::{Codec, bits, range, round};

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

    /// The element farthest from zero becomes -16 exactly, so the scale carries its sign; the rest is rounded half up.
    fn store(x: &[f32; 32]) -> Self {
        let d = range::farthest(x) / -16.0;
        let id = round::inverse(d);
        let (qs, qh) = bits::fives(x, |x| round::truncate(x * id + 16.5) as u8);
        Block { d: Half::from_f32(d), qh, qs }
    }
}
