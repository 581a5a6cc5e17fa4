//! IQ1_S: 256 elements in sub-blocks of 32, each with a scale of 3 bits; 11 bits choose eight
//! elements of -1, 0 and 1, which a sub-block shifts up or down by an eighth.
//!
//! An element is `d * (2 s + 1) * (q ± 1/8)`.
//!
//! ```text
//! byte   0 1   2 .. 33                     34 .. 49
//!        d     grid points, lower 8 bits   16 bits for each 32: four times three upper bits,
//!                                          s, shift
//! ```
//! 1.56 bits an element in all. Encoding needs to know which errors matter.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, stored_scale};
use super::f16::Half;
use super::grid::{self, Grid, IQ1};
use super::range;
use super::search::Sums;

/// Eight times the elements shifted up, then those shifted down; a code is a level plus 4 times the
/// shift.
pub const VALUES: [i8; 16] = [-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// 256 elements in 50 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The lower eight bits of a grid point for each eight elements.
    pub qs: [u8; 32],
    /// For each sub-block the upper three bits of four grid points, the scale, and in the highest
    /// bit the shift, set for down; little-endian.
    pub qh: [[u8; 2]; 8],
}

/// Return the codes of a group: the levels of a point, and the shift, 1 for down.
pub fn codes(levels: [u8; 8], down: u8) -> [u8; 8] {
    levels.map(|level| level | down << 2)
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 0.125;

    fn d(&self) -> Half {
        self.d
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        let scale = self.qh[j][1] >> 4 & 7;
        [2 * scale as i8 + 1; 2]
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let h = u16::from_le_bytes(self.qh[j]);
        let mut q = [0; 32];
        for (k, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            let upper = usize::from(h >> (3 * k) & 7);
            *q = codes(IQ1.point(usize::from(self.qs[4 * j + k]) | upper << 8), (h >> 15) as u8);
        }
        q
    }
}

/// The values of the levels 0, 1 and 2: shifted up, and shifted down.
pub const SHIFTED: [[f32; 3]; 2] = [[-0.875, 0.125, 1.125], [-1.125, -0.125, 0.875]];

/// Return the indices of `x` in ascending order of the elements; equal ones stay in order.
pub fn ascending<const S: usize>(x: &[f32; S]) -> [usize; S] {
    let mut order = core::array::from_fn(|i| i);
    for end in 1..S {
        let mut at = end;
        while at > 0 && x[order[at - 1]] > x[order[at]] {
            order.swap(at - 1, at);
            at -= 1;
        }
    }
    order
}

/// A way to divide ascending elements into three levels, with the scale that suits it.
#[derive(Clone, Copy)]
pub struct Split {
    /// The scale; its sign may be negative.
    pub scale: f32,
    /// The first element of level 1, and that of level 2.
    pub ends: [usize; 2],
    /// The number of the shifts that suit it.
    pub shifts: usize,
}

impl Split {
    /// Return the levels of all elements, whose ascending order is given.
    pub fn levels<const S: usize>(&self, order: &[usize; S]) -> [u8; S] {
        let mut levels = [0; S];
        for (at, &i) in order.iter().enumerate() {
            levels[i] = self.ends.iter().filter(|&&end| at >= end).count() as u8;
        }
        if self.scale < 0.0 { levels.map(|level| 2 - level) } else { levels }
    }
}

/// The best of several candidates by their sums, the first of equals.
pub struct Best<T> {
    score: f32,
    /// The best so far.
    pub found: Option<T>,
}

impl<T> Best<T> {
    /// Return the best of none.
    pub fn new() -> Self {
        Self { score: f32::MIN, found: None }
    }

    /// Take the candidate that `make` returns for its scale if it is better than all before.
    pub fn offer(&mut self, sums: Sums, make: impl FnOnce(f32) -> T) {
        if sums.qq > 0.0 && sums.xq * sums.xq > self.score * sums.qq {
            let scale = sums.xq / sums.qq;
            self.score = scale * sums.xq;
            self.found = Some(make(scale));
        }
    }
}

/// Return the best split of a sub-block with one shift.
fn split(x: &[f32; 32], w: &[f32; 32], order: &[usize; 32]) -> Option<Split> {
    let (mut sum_x, mut sum_w) = ([0.0; 33], [0.0; 33]);
    for (at, &i) in order.iter().enumerate() {
        sum_x[at + 1] = sum_x[at] + w[i] * x[i];
        sum_w[at + 1] = sum_w[at] + w[i];
    }
    let mut best = Best::new();
    for first in 0..=32 {
        for second in first..=32 {
            for (shifts, [a, b, c]) in SHIFTED.into_iter().enumerate() {
                let parts =
                    |sum: &[f32; 33]| [sum[first] - sum[0], sum[second] - sum[first], sum[32] - sum[second]];
                let ([xa, xb, xc], [wa, wb, wc]) = (parts(&sum_x), parts(&sum_w));
                let sums = Sums { xq: xa * a + xb * b + xc * c, qq: wa * a * a + wb * b * b + wc * c * c };
                best.offer(sums, |scale| Split { scale, ends: [first, second], shifts });
            }
        }
    }
    best.found
}

/// Elements of a sub-block on the grid.
pub struct OnGrid<const N: usize> {
    /// The scale.
    pub scale: f32,
    /// The numbers of the points.
    pub points: [u16; N],
}

/// Put the levels of a sub-block on the grid; `values` are those of the levels of each group. Where
/// a group had to be moved, compute the scale again.
pub fn on_grid<const S: usize, const N: usize>(
    x: &[f32; S],
    w: &[f32; S],
    levels: &[u8; S],
    scale: f32,
    values: [&[f32; 3]; N],
) -> OnGrid<N> {
    let grid: &Grid<8> = &IQ1;
    let (mut levels, mut moved) = (*levels, false);
    let groups = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0);
    for ((levels, (x, w)), values) in levels.as_chunks_mut::<8>().0.iter_mut().zip(groups).zip(values) {
        if grid.find(levels).is_none() {
            moved = true;
            *levels = grid.closest(levels, |point| {
                (0..8).fold(0.0, |sum, i| {
                    let diff = scale * values[usize::from(point[i])] - x[i];
                    sum + w[i] * diff * diff
                })
            });
        }
    }
    let points = grid::numbers::<8, S, N>(grid, &levels);
    let mut sums = Sums::default();
    if moved {
        for i in 0..S {
            let q = values[i / 8][usize::from(levels[i])];
            sums.xq += w[i] * q * x[i];
            sums.qq += w[i] * q * q;
        }
    }
    let solved = sums.xq > 0.0 && sums.qq > 0.0;
    OnGrid { scale: if solved { sums.xq / sums.qq } else { scale }, points }
}

impl Codec<256> for Block {
    const NEEDS_IMPORTANCE: bool = true;

    fn load(&self, y: &mut [f32; 256]) {
        codes::load(self, y);
    }

    /// Encode as if all errors mattered alike.
    fn store(x: &[f32; 256]) -> Self {
        Self::store_important(x, &Importance { of: &[1.0; 256], row_mean_square: 0.0 })
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let mean_square = 2.0 * sum_of_squares(x) / 256.0;
        let (mut block, mut fits, mut down) = (Block::zeroed(), [0.0; 8], [false; 8]);
        let mut upper = [0; 8];
        for (j, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let w = importance.weights(j, x, mean_square);
            let order = ascending(x);
            let is_zero = range::farthest(x).abs() < 1e-12;
            let Some(split) = split(x, &w, &order).filter(|_| !is_zero) else { continue };
            let levels = split.levels(&order);
            // A negative scale turns the elements around, and the shift with them.
            let shift = if split.scale < 0.0 { 1 - split.shifts } else { split.shifts };
            let found = on_grid::<32, 4>(x, &w, &levels, split.scale.abs(), [&SHIFTED[shift]; 4]);
            (fits[j], down[j]) = (found.scale, shift == 1);
            for (k, point) in found.points.into_iter().enumerate() {
                block.qs[4 * j + k] = point as u8;
                upper[j] |= point >> 8 << (3 * k);
            }
        }
        let max_scale = largest(&fits);
        if max_scale > 0.0 {
            let d = max_scale / 15.0;
            // The factor lowers the error a little; it is the reference's.
            block.d = Half::from_f32(d * 1.125);
            for (j, upper) in upper.iter_mut().enumerate() {
                let scale = u16::from(stored_scale(fits[j], 1.0 / d, 7));
                *upper |= (scale | u16::from(down[j]) << 3) << 12;
            }
        }
        block.qh = upper.map(u16::to_le_bytes);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_elements_stay_in_order() {
        assert_eq!(ascending(&[0.5, -1.0, 0.5, -0.0, 0.0, -1.0]), [1, 5, 3, 4, 0, 2]);
    }

    #[test]
    fn a_negative_scale_turns_levels_around() {
        let split = Split { scale: -1.0, ends: [1, 3], shifts: 0 };
        assert_eq!(split.levels(&[3, 1, 0, 2]), [1, 1, 0, 2]);
    }
}
