//! TQ2_0: 256 elements, one scale, -1, 0 or 1 each in 2 bits: `d * (q - 1)`.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::f16::Half;
use super::{Codec, range, round};

/// 256 elements in 66 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Two bits an element.
    pub qs: [u8; 64],
    /// The scale.
    pub d: Half,
}

impl Block {
    /// The quants of 32 elements from 32j (0 to 7).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        Plane::TWO.strip(&self.qs, j)
    }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *y = Plane::TWO.strip(&self.qs, j).map(|q| (i32::from(q) - 1) as f32 * d);
        }
    }

    /// The scale is the largest magnitude; the rest is rounded half away from zero.
    fn store(x: &[f32; 256]) -> Self {
        let d = range::farthest(x).abs();
        let id = round::inverse(d);
        let q = x.map(|x| round::truncate(libm::roundf(x * id)).wrapping_add(1) as u8);
        Block { qs: Plane::TWO.pack(&q, 0), d: Half::from_f32(d) }
    }
}
