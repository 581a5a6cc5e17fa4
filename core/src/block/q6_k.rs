//! Q6_K: 256 elements in sub-blocks of 16, each with a signed scale of 8 bits; 6 bits an element.
//!
//! An element is `d * s * (q - 32)`.
//!
//! ```text
//! byte   0 .. 127          128 .. 191       192 .. 207        208 209
//!        lower four bits   upper two bits   scales, 8 bits    d
//! ```
//! 6.6 bits an element in all. Files of smaller types often keep the output matrix in this one.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::{Codec, Importance};
use super::f16::Half;
use super::search::{NEGLIGIBLE, requantise_signed, squares, symmetric};
use super::{range, round};

/// 256 elements in 210 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The lower four bits of each element; 128 elements share 64 bytes.
    pub ql: [u8; 128],
    /// The upper two bits of each element.
    pub qh: [u8; 64],
    /// The scales of the sub-blocks.
    pub scales: [i8; 16],
    /// The scale of the scales.
    pub d: Half,
}

const LOW: Plane = Plane { bits: 4, width: 64 };

impl Block {
    /// Return the quants of the two sub-blocks from 2j (`j` from 0 to 7): their lower four bits,
    /// and the upper two.
    pub fn quants(&self, j: usize) -> ([u8; 32], [u8; 32]) {
        (LOW.sub_block(&self.ql, j), Plane::TWO.sub_block(&self.qh, j))
    }
}

/// Encode a block whose errors count by `w`.
fn encode(x: &[f32; 256], w: &[f32; 256]) -> Block {
    let (mut fits, mut q) = ([0.0; 16], [0; 256]);
    let sub_blocks = x.as_chunks::<16>().0.iter().zip(w.as_chunks::<16>().0);
    for ((fit, q), (x, w)) in fits.iter_mut().zip(q.as_chunks_mut::<16>().0).zip(sub_blocks) {
        *fit = symmetric(x, w, 32, q);
    }
    let far = range::farthest(&fits);
    if far.abs() < NEGLIGIBLE {
        return Block::zeroed();
    }
    let inverse = -128.0 / far;
    let scales = fits.map(|fit| round::nearest(inverse * fit).min(127) as i8);
    let d = Half::from_f32(1.0 / inverse);
    for ((q, x), scale) in q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).zip(scales) {
        requantise_signed(x, q, d.to_f32() * f32::from(scale), 32);
    }
    Block { ql: LOW.pack(&q, 0), qh: Plane::TWO.pack(&q, 4), scales, d }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, (y, scale)) in y.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate() {
            let d = d * f32::from(scale);
            let low: [u8; 16] = LOW.sub_block(&self.ql, j);
            let high: [u8; 16] = Plane::TWO.sub_block(&self.qh, j);
            for (y, (low, high)) in y.iter_mut().zip(low.into_iter().zip(high)) {
                *y = d * (i32::from(high << 4 | low) - 32) as f32;
            }
        }
    }

    /// Search each sub-block, make the scale farthest from zero -128, then round again with the
    /// scales as stored.
    fn store(x: &[f32; 256]) -> Self {
        encode(x, &squares(x))
    }

    /// Do as [`Codec::store`] with the importance alone as weights.
    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        encode(x, importance.of)
    }
}
