//! TQ2_0: 256 elements, one scale, -1, 0 or 1 each in 2 bits.
//!
//! An element is `d * (q - 1)`.
//!
//! ```text
//! byte   0 .. 63            64 65
//!        quants, 2 bits     d
//! ```
//! For models that were trained with such weights (BitNet); others lose too much.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::Codec;
use super::f16::Half;
use super::{range, round};

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
    /// Return the quants of the 32 elements from 32j (`j` from 0 to 7).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        Plane::TWO.sub_block(&self.qs, j)
    }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *y = Plane::TWO.sub_block(&self.qs, j).map(|q| (i32::from(q) - 1) as f32 * d);
        }
    }

    /// Make the largest magnitude the scale; round the rest half away from zero.
    fn store(x: &[f32; 256]) -> Self {
        let d = range::farthest(x).abs();
        let id = round::inverse(d);
        let q = x.map(|x| round::truncate(libm::roundf(x * id)).wrapping_add(1) as u8);
        Block { qs: Plane::TWO.pack(&q, 0), d: Half::from_f32(d) }
    }
}
