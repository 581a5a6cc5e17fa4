//! Q4_K: 256 elements in sub-blocks of 32, each with a scale and a minimum of 6 bits; 4 bits an
//! element: `d * s * q - dmin * m`.
//!
//! ```text
//! byte   0 1   2 3    4 .. 15                     16 .. 143
//!        d     dmin   scales and minima, 6 bits   quants, 4 bits
//! ```
//! 4.5 bits an element in all, as many as Q4_0; a scale for 32 elements costs 6 bits here and 16
//! there, which leaves room for the minima.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::{Codec, Importance};
use super::f16::Half;
use super::scale_min::{self, SubBlocks};
use super::search::Affine;

/// 256 elements in 144 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The scale of the minima.
    pub dmin: Half,
    /// Scales and minima of the sub-blocks, 6 bits each; read by [`Block::scale_min`].
    pub scales: [u8; 12],
    /// Four bits an element.
    pub qs: [u8; 128],
}

const SEARCH: Affine = Affine { largest: 15, first: -1.0, step: 0.1, steps: 20, error: |diff| diff * diff };

impl Block {
    /// Return the scale and the minimum of sub-block `j` (0 to 7), `0..64` each.
    pub fn scale_min(&self, j: usize) -> (u8, u8) {
        scale_min::unpack(&self.scales, j)
    }

    /// Return the quants of sub-block `j` (0 to 7).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        Plane::FOUR.sub_block(&self.qs, j)
    }
}

/// Return the block of encoded sub-blocks.
fn packed(sub_blocks: &SubBlocks) -> Block {
    let qs = Plane::FOUR.pack(&sub_blocks.q, 0);
    Block { d: sub_blocks.d, dmin: sub_blocks.dmin, scales: sub_blocks.scales, qs }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = self.scale_min(j);
            let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
            *y = Plane::FOUR.sub_block(&self.qs, j).map(|q| d * f32::from(q) - m);
        }
    }

    fn store(x: &[f32; 256]) -> Self {
        packed(&scale_min::encode(x, &SEARCH))
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        packed(&scale_min::encode_important(x, importance, SEARCH.largest))
    }
}
