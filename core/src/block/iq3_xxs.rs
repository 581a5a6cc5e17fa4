//! IQ3_XXS: 256 elements in sub-blocks of 32, each with a scale of 4 bits; 8 bits choose four
//! magnitudes, 7 bits are the signs of eight.
//!
//! An element is `d * (2 s + 1) / 4 * magnitude`, where magnitudes are 4, 12, 20 … 52 and 62.
//!
//! ```text
//! byte   0 1   2 .. 65        66 .. 97
//!        d     grid points    32 bits for each 32: four times seven signs, s on top
//! ```
//! 3.06 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, max, odd, stored_scale};
use super::f16::Half;
use super::grid::search::{Again, Search};
use super::grid::signs::{Signed, complete};
use super::grid::{self, IQ3_XXS};
use super::search::squares;

/// The magnitudes, then those with a minus sign; a code is a level plus 8 times the sign.
pub const VALUES: [i8; 16] = [4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62];

/// 256 elements in 98 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The number of a grid point for each four elements.
    pub qs: [u8; 64],
    /// Signs and scale of each sub-block, 32 bits, little-endian.
    pub signs: [[u8; 4]; 8],
}

/// Return the codes of eight elements: the levels of two points, and signs.
pub fn codes(first: [u8; 4], second: [u8; 4], signs: u8) -> [u8; 8] {
    core::array::from_fn(|i| [first, second][i / 4][i % 4] | (signs >> i & 1) << 3)
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 0.25;

    fn d(&self) -> Half {
        self.d
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        [odd(self.signs[j][3] >> 4); 2]
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let signs = u32::from_le_bytes(self.signs[j]);
        let points = self.qs.as_chunks::<2>().0[4 * j..].iter();
        let mut q = [0; 32];
        for (k, (q, [a, b])) in q.as_chunks_mut().0.iter_mut().zip(points).enumerate() {
            let [a, b] = [a, b].map(|point| IQ3_XXS.point(usize::from(*point)));
            *q = codes(a, b, complete((signs >> (7 * k)) as u8));
        }
        q
    }
}

const SEARCH: Search<4> = Search { grid: &IQ3_XXS, n_steps: 15, step: 0.2, again: Again::OffGrid };

/// Return the scale of a sub-block with its points, and signs as they are stored.
fn sub_block(x: &[f32; 32], w: &[f32; 32]) -> (f32, [u8; 8], u32) {
    let mut signed = Signed::even(x, w);
    let max = max(&signed.x);
    if max < 1e-8 {
        return (0.0, [0; 8], 0);
    }
    let fit = SEARCH.run(&signed.x, w, max);
    if fit.scale < 0.0 {
        signed.turn();
    }
    let points = grid::numbers::<4, 32, 8>(&IQ3_XXS, &fit.levels).map(|point| point as u8);
    let seven = |k: usize| u32::from(signed.signs[k] & 127) << (7 * k);
    (fit.scale.abs(), points, (0..4).map(seven).sum())
}

/// Encode a block whose errors count by what `weights` returns for each sub-block.
fn encode(x: &[f32; 256], weights: impl Fn(usize, &[f32; 32]) -> [f32; 32]) -> Block {
    let (mut block, mut fits, mut signs) = (Block::zeroed(), [0.0; 8], [0; 8]);
    let sub_blocks = x.as_chunks::<32>().0.iter().zip(block.qs.as_chunks_mut::<8>().0);
    for (j, (x, qs)) in sub_blocks.enumerate() {
        (fits[j], *qs, signs[j]) = sub_block(x, &weights(j, x));
    }
    let max_scale = largest(&fits);
    if max_scale == 0.0 {
        return Block::zeroed();
    }
    let d = max_scale / 31.0;
    // The factor lowers the error a little; it is the reference's.
    block.d = Half::from_f32(d * 1.0125);
    for (j, stored) in block.signs.iter_mut().enumerate() {
        let scale = u32::from(stored_scale(fits[j], 1.0 / d, 15)) << 28;
        *stored = (signs[j] | scale).to_le_bytes();
    }
    block
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
