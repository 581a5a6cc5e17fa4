//! IQ2_XXS: 256 elements in sub-blocks of 32, each with a scale of 4 bits; 8 bits choose eight
//! magnitudes, 7 bits their signs.
//!
//! An element is `d * (2 s + 1) / 8 * magnitude`, where magnitudes are 8, 25 and 43.
//!
//! ```text
//! byte   0 1   2 .. 65
//!        d     eight times: four grid points, then 32 bits: four times seven signs, s on top
//! ```
//! 2.06 bits an element in all. Encoding needs to know which errors matter.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, max, odd, stored_scale};
use super::f16::Half;
use super::grid::search::{Again, Fit, Search};
use super::grid::signs::{Signed, complete};
use super::grid::{self, IQ2_XXS};
use super::search::{NEGLIGIBLE, unsigned};

/// The magnitudes, then those with a minus sign; a code is a level plus 4 times the sign.
pub const VALUES: [i8; 16] = [8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// 256 elements in 66 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// Sub-blocks: the numbers of four grid points, then signs and scale.
    pub qs: [[u8; 8]; 8],
}

impl Block {
    /// Return grid points, and signs and scale of sub-block `j`.
    fn sub_block(&self, j: usize) -> ([u8; 4], u32) {
        let [a, b, c, d, signs @ ..] = self.qs[j];
        ([a, b, c, d], u32::from_le_bytes(signs))
    }
}

/// Return the codes of a group: the levels of a point, and signs.
pub fn codes(levels: [u8; 8], signs: u8) -> [u8; 8] {
    core::array::from_fn(|i| levels[i] | (signs >> i & 1) << 2)
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 0.125;

    fn d(&self) -> Half {
        self.d
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        [odd((self.sub_block(j).1 >> 28) as u8); 2]
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let (points, signs) = self.sub_block(j);
        let mut q = [0; 32];
        for (k, (q, point)) in q.as_chunks_mut().0.iter_mut().zip(points).enumerate() {
            *q = codes(IQ2_XXS.point(usize::from(point)), complete((signs >> (7 * k)) as u8));
        }
        q
    }
}

const SEARCH: Search<8> = Search { grid: &IQ2_XXS, n_steps: 6, step: 0.1, again: Again::All };

/// Return the scale of a sub-block with grid points and signs as they are stored.
fn sub_block(x: &[f32; 32], w: &[f32; 32]) -> (f32, [u8; 4], u32) {
    let mut signed = Signed::even(x, w);
    if max(&signed.x) < NEGLIGIBLE {
        return (0.0, [0; 4], 0);
    }
    let mut levels = [0; 32];
    let scale = unsigned(&signed.x, w, 4, &mut levels);
    // The search begins at three times this scale, where 5 is the value of the highest level.
    if scale * 3.0 <= 0.0 {
        return (0.0, [0; 4], 0);
    }
    let fit = SEARCH.run_from(&signed.x, w, scale * 3.0, Fit { scale, levels });
    if fit.scale < 0.0 {
        signed.turn();
    }
    let points = grid::numbers::<8, 32, 4>(&IQ2_XXS, &fit.levels).map(|point| point as u8);
    let seven = |k: usize| u32::from(signed.signs[k] & 127) << (7 * k);
    (fit.scale.abs(), points, (0..4).map(seven).sum())
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
        let mean_square = sum_of_squares(x) / 256.0;
        let (mut scales, mut points, mut signs) = ([0.0; 8], [[0; 4]; 8], [0; 8]);
        for (j, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let w = importance.weights(j, x, mean_square);
            (scales[j], points[j], signs[j]) = sub_block(x, &w);
        }
        let max_scale = largest(&scales);
        if max_scale == 0.0 {
            return Block::zeroed();
        }
        let d = max_scale / 31.0;
        let mut qs = [[0; 8]; 8];
        for (j, qs) in qs.iter_mut().enumerate() {
            let scale = u32::from(stored_scale(scales[j], 1.0 / d, 15)) << 28;
            qs[..4].copy_from_slice(&points[j]);
            qs[4..].copy_from_slice(&(signs[j] | scale).to_le_bytes());
        }
        Block { d: Half::from_f32(d), qs }
    }
}
