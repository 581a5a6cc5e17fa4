//! IQ1_M: 256 elements in sub-blocks of 16, each with a scale of 3 bits; 11 bits choose eight
//! elements of -1, 0 and 1, which are shifted up or down by an eighth.
//!
//! An element is `d * (2 s + 1) * (q ± 1/8)`.
//!
//! ```text
//! byte   0 .. 31                     32 .. 47                        48 .. 55
//!        grid points, lower 8 bits   nibbles: three upper bits,      four times four scales
//!                                    shift                           and four bits of d
//! ```
//! 1.75 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, stored_scale};
use super::f16::Half;
use super::grid::IQ1;
use super::iq1_s::{Best, SHIFTED, Split, VALUES, ascending, codes, on_grid};
use super::range;
use super::search::{Sums, squares};

/// 256 elements in 56 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The lower eight bits of a grid point for each eight elements.
    pub qs: [u8; 32],
    /// A nibble for each eight elements, the first in the low one: the upper three bits of the grid
    /// point, and the shift, set for down.
    pub qh: [u8; 16],
    /// For each 64 elements four scales of three bits, and on top four bits of `d`, the lowest
    /// first; little-endian.
    pub scales: [[u8; 2]; 4],
}

impl Block {
    /// Return the nibble of group `i`, of 32.
    fn nibble(&self, i: usize) -> u8 {
        self.qh[i / 2] >> (i % 2 * 4) & 15
    }

    /// Return the number of the grid point of group `i`, of 32.
    fn point(&self, i: usize) -> usize {
        usize::from(self.qs[i]) | usize::from(self.nibble(i) & 7) << 8
    }

    /// Return the stored scale of sub-block `i`, of 16.
    fn scale(&self, i: usize) -> u8 {
        (u16::from_le_bytes(self.scales[i / 4]) >> (i % 4 * 3) & 7) as u8
    }
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 0.125;

    fn d(&self) -> Half {
        let nibble = |i: usize| u16::from_le_bytes(self.scales[i]) >> 12 << (4 * i);
        Half::from_bits((0..4).map(nibble).sum())
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        [2 * j, 2 * j + 1].map(|i| 2 * self.scale(i) as i8 + 1)
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let mut q = [0; 32];
        for (k, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            let i = 4 * j + k;
            *q = codes(IQ1.point(self.point(i)), self.nibble(i) >> 3);
        }
        q
    }
}

/// Return what levels of group `k` of a sub-block are worth with these shifts, a number from 0 to
/// 3: two bits, that of the second group lower.
fn values(shifts: usize, k: usize) -> &'static [f32; 3] {
    &SHIFTED[shifts >> (1 - k) & 1]
}

/// Return the best split of a sub-block, of all shifts.
fn split(x: &[f32; 16], w: &[f32; 16], order: &[usize; 16]) -> Option<Split> {
    // What each element adds to the sums, by shift and level.
    let terms: [[[Sums; 3]; 2]; 16] = core::array::from_fn(|i| {
        SHIFTED.map(|values| values.map(|q| Sums { xq: w[i] * q * x[i], qq: w[i] * q * q }))
    });
    let mut best = Best::new();
    for first in 0..=16 {
        for second in first..=16 {
            let mut sums = [Sums::default(); 4];
            for (at, &i) in order.iter().enumerate() {
                let level = usize::from(at >= first) + usize::from(at >= second);
                for (shifts, sums) in sums.iter_mut().enumerate() {
                    let term = terms[i][shifts >> (1 - i / 8) & 1][level];
                    sums.xq += term.xq;
                    sums.qq += term.qq;
                }
            }
            for (shifts, sums) in sums.into_iter().enumerate() {
                best.offer(sums, |scale| Split { scale, ends: [first, second], shifts });
            }
        }
    }
    best.found
}

/// Encode a block whose errors count by what `weights` returns for each sub-block.
fn encode(x: &[f32; 256], weights: impl Fn(usize, &[f32; 16]) -> [f32; 16]) -> Block {
    let (mut block, mut fits, mut all_shifts) = (Block::zeroed(), [0.0; 16], [0; 16]);
    for (j, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let (w, order) = (weights(j, x), ascending(x));
        let is_zero = range::farthest(x).abs() < 1e-7;
        let Some(split) = split(x, &w, &order).filter(|_| !is_zero) else { continue };
        let shifts = if split.scale < 0.0 { 3 - split.shifts } else { split.shifts };
        let values = [values(shifts, 0), values(shifts, 1)];
        let found = on_grid::<16, 2>(x, &w, &split.levels(&order), split.scale.abs(), values);
        (fits[j], all_shifts[j]) = (found.scale, shifts);
        for (k, point) in found.points.into_iter().enumerate() {
            block.qs[2 * j + k] = point as u8;
            block.qh[j] |= ((point >> 8) << (4 * k)) as u8;
        }
    }
    let max_scale = largest(&fits);
    if max_scale > 0.0 {
        finish(&mut block, x, &weights, &fits, max_scale / 15.0, &all_shifts);
    }
    block
}

/// Round the scales, write them and the shifts, and search for the best scale of scales.
fn finish(
    block: &mut Block,
    x: &[f32; 256],
    weights: impl Fn(usize, &[f32; 16]) -> [f32; 16],
    fits: &[f32; 16],
    d: f32,
    shifts: &[usize; 16],
) {
    let mut scales = [0_u16; 4];
    let mut sums = Sums::default();
    for (j, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let scale = stored_scale(fits[j], 1.0 / d, 7);
        scales[j / 4] |= u16::from(scale) << (3 * (j % 4));
        // The shift of the first group is bit 3, that of the second bit 7.
        block.qh[j] |= ((shifts[j] >> 1) << 3 | (shifts[j] & 1) << 7) as u8;
        let w = weights(j, x);
        for k in 0..2 {
            let point = IQ1.point(block.point(2 * j + k));
            for i in 0..8 {
                let q = values(shifts[j], k)[usize::from(point[i])] * f32::from(2 * scale + 1);
                sums.xq += w[8 * k + i] * q * x[8 * k + i];
                sums.qq += w[8 * k + i] * q * q;
            }
        }
    }
    let d = if sums.qq > 0.0 { sums.xq / sums.qq } else { d };
    // The factor lowers the error a little; it is the reference's.
    let bits = Half::from_f32(d * 1.1125).bits();
    block.scales = core::array::from_fn(|i| (scales[i] | (bits >> (4 * i) & 15) << 12).to_le_bytes());
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        codes::load(self, y);
    }

    fn store(x: &[f32; 256]) -> Self {
        encode(x, |_, x| squares(x))
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let mean_square = 2.0 * sum_of_squares(x) / 256.0;
        encode(x, |j, x| importance.weights(j, x, mean_square))
    }
}
