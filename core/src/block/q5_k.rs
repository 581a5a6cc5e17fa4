//! Q5_K: 256 elements in sub-blocks of 32, each with a scale and a minimum of 6 bits; 5 bits an
//! element.
//!
//! An element is `d * s * q - dmin * m`.
//!
//! ```text
//! byte   0 1   2 3    4 .. 15                     16 .. 47     48 .. 175
//!        d     dmin   scales and minima, 6 bits   fifth bits   lower four bits
//! ```
//! 5.5 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::{Codec, Importance};
use super::f16::Half;
use super::scale_min::{self, SubBlocks};
use super::search::Affine;

/// 256 elements in 176 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The scale of the minima.
    pub dmin: Half,
    /// Scales and minima of the sub-blocks, 6 bits each; read by [`Block::scale_min`].
    pub scales: [u8; 12],
    /// The fifth bit of each element.
    pub qh: [u8; 32],
    /// The lower four bits of each element.
    pub qs: [u8; 128],
}

const SEARCH: Affine = Affine { largest: 31, first: -0.5, step: 0.1, steps: 15, error: |diff| diff * diff };

impl Block {
    /// Return the scale and the minimum of sub-block `j` (0 to 7), `0..64` each.
    pub fn scale_min(&self, j: usize) -> (u8, u8) {
        scale_min::unpack(&self.scales, j)
    }

    /// Return the quants of sub-block `j` (0 to 7): their lower four bits, and the fifth.
    pub fn quants(&self, j: usize) -> ([u8; 32], [u8; 32]) {
        (Plane::FOUR.sub_block(&self.qs, j), Plane::ONE.sub_block(&self.qh, j))
    }
}

/// Return the block of encoded sub-blocks.
fn packed(sub_blocks: &SubBlocks) -> Block {
    let (qh, qs) = (Plane::ONE.pack(&sub_blocks.q, 4), Plane::FOUR.pack(&sub_blocks.q, 0));
    Block { d: sub_blocks.d, dmin: sub_blocks.dmin, scales: sub_blocks.scales, qh, qs }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (j, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = self.scale_min(j);
            let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
            let low: [u8; 32] = Plane::FOUR.sub_block(&self.qs, j);
            let high: [u8; 32] = Plane::ONE.sub_block(&self.qh, j);
            for (y, (low, high)) in y.iter_mut().zip(low.into_iter().zip(high)) {
                *y = d * f32::from(high << 4 | low) - m;
            }
        }
    }

    fn store(x: &[f32; 256]) -> Self {
        packed(&scale_min::encode(x, &SEARCH))
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        packed(&scale_min::encode_important(x, importance, SEARCH.largest))
    }
}
