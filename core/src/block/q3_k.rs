//! Q3_K: 256 elements in sub-blocks of 16, each with a signed scale of 6 bits; 3 bits an element.
//!
//! An element is `d * (s - 32) * (q - 4)`.
//!
//! ```text
//! byte   0 .. 31         32 .. 95              96 .. 107           108 109
//!        third bits      lower two bits        scales, 6 bits      d
//! ```
//! 3.4 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::{Codec, Importance, sum_of_squares};
use super::f16::Half;
use super::search::{one_by_one, requantise_signed, symmetric};
use super::{range, round};

/// 256 elements in 110 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The third bit of each element.
    pub hmask: [u8; 32],
    /// The lower two bits of each element.
    pub qs: [u8; 64],
    /// Scales in 6 bits. Byte `j` holds the low nibbles of scales `j` and `8 + j`; byte `8 + j`
    /// holds the upper two bits of scales `j`, `4 + j`, `8 + j` and `12 + j`, the first lowest.
    pub scales: [u8; 12],
    /// The scale of the scales.
    pub d: Half,
}

impl Block {
    /// Return the scale of sub-block `j` (0 to 15), less its offset: `-32..32`.
    pub fn scale(&self, j: usize) -> i8 {
        unpack(&self.scales, j) as i8
    }

    /// Return the quants of the two sub-blocks from 2j (`j` from 0 to 7): their lower two bits, and
    /// the third.
    pub fn quants(&self, j: usize) -> ([u8; 32], [u8; 32]) {
        (Plane::TWO.sub_block(&self.qs, j), Plane::ONE.sub_block(&self.hmask, j))
    }
}

/// Return the scale of sub-block `j`, less its offset.
fn unpack(packed: &[u8; 12], j: usize) -> i32 {
    let low = packed[j % 8] >> (j / 8 * 4) & 15;
    let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
    i32::from(high << 4 | low) - 32
}

/// Add the scale of sub-block `j`, `-32..32`; its bits must still be zero.
fn pack(packed: &mut [u8; 12], j: usize, scale: i32) {
    let scale = (scale + 32) as u8;
    packed[j % 8] |= (scale & 15) << (j / 8 * 4);
    packed[8 + j % 4] |= scale >> 4 << (j / 4 * 2);
}

/// Round the quants again with the scales as stored, and return the block.
fn finish(x: &[f32; 256], scales: [u8; 12], d: Half, q: &mut [u8; 256]) -> Block {
    for (j, (q, x)) in q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).enumerate() {
        requantise_signed(x, q, d.to_f32() * unpack(&scales, j) as f32, 4);
    }
    Block { hmask: Plane::ONE.pack(q, 2), qs: Plane::TWO.pack(q, 0), scales, d }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let d = d * unpack(&self.scales, j) as f32;
            let low: [u8; 16] = Plane::TWO.sub_block(&self.qs, j);
            let high: [u8; 16] = Plane::ONE.sub_block(&self.hmask, j);
            for (y, (low, high)) in y.iter_mut().zip(low.into_iter().zip(high)) {
                *y = d * (i32::from(high << 2 | low) - 4) as f32;
            }
        }
    }

    /// Search each sub-block, make the scale farthest from zero -32, then round again with the
    /// scales as stored.
    fn store(x: &[f32; 256]) -> Self {
        let (mut fits, mut q) = ([0.0; 16], [0; 256]);
        for ((fit, q), x) in fits.iter_mut().zip(q.as_chunks_mut::<16>().0).zip(x.as_chunks::<16>().0) {
            *fit = one_by_one(x, 4, q);
        }
        let far = range::farthest(&fits);
        let mut scales = [0; 12];
        let mut d = Half::from_f32(0.0);
        if far != 0.0 {
            let inverse = -32.0 / far;
            for (j, fit) in fits.into_iter().enumerate() {
                pack(&mut scales, j, round::nearest(inverse * fit).clamp(-32, 31));
            }
            d = Half::from_f32(1.0 / inverse);
        }
        finish(x, scales, d, &mut q)
    }

    /// Search each sub-block, then search the scale of scales, where those of sub-blocks with large
    /// weights count more.
    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let mean_square = 2.0 * sum_of_squares(x) / 256.0;
        let (mut fits, mut sums, mut q) = ([0.0; 16], [0.0; 16], [0; 256]);
        for (j, (q, x)) in q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).enumerate() {
            let w = importance.weights(j, x, mean_square);
            sums[j] = w.iter().fold(0.0, |sum, w| sum + w);
            fits[j] = symmetric(x, &w, 4, q);
        }
        let mut scale_q = [0; 16];
        let d = Half::from_f32(symmetric(&fits, &sums, 32, &mut scale_q));
        let mut scales = [0; 12];
        for (j, scale) in scale_q.into_iter().enumerate() {
            pack(&mut scales, j, i32::from(scale) - 32);
        }
        finish(x, scales, d, &mut q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_come_back() {
        let wanted: [i32; 16] = core::array::from_fn(|j| (j as i32 * 23 + 5) % 64 - 32);
        let mut packed = [0; 12];
        for (j, scale) in wanted.into_iter().enumerate() {
            pack(&mut packed, j, scale);
        }
        assert_eq!(core::array::from_fn(|j| unpack(&packed, j)), wanted);
    }
}
