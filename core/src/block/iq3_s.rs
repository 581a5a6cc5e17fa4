//! IQ3_S: 256 elements in sub-blocks of 32, each with a scale of 4 bits; 9 bits choose four
//! magnitudes, and each element has a sign.
//!
//! An element is `d * (2 s + 1) * magnitude`, where magnitudes are 1, 3, 5 … 15.
//!
//! ```text
//! byte   0 1   2 .. 65                     66 .. 73         74 .. 105   106 .. 109
//!        d     grid points, lower 8 bits   their ninth bit  signs       scales, 4 bits
//! ```
//! 3.44 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, max, odd, stored_scale};
use super::f16::Half;
use super::grid::search::{Again, Search};
use super::grid::signs::Signed;
use super::grid::{self, IQ3_S};
use super::iq3_xxs::codes;
use super::search::squares;

/// The magnitudes, then those with a minus sign; a code is a level plus 8 times the sign.
pub const VALUES: [i8; 16] = [1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15];

/// 256 elements in 110 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The lower eight bits of a grid point for each four elements.
    pub qs: [u8; 64],
    /// The ninth bits of eight grid points a byte, the first lowest.
    pub qh: [u8; 8],
    /// The signs of each eight elements.
    pub signs: [u8; 32],
    /// Two scales a byte, the first in the low nibble.
    pub scales: [u8; 4],
}

impl Block {
    /// Return the levels of point `k` of sub-block `j`.
    fn point(&self, j: usize, k: usize) -> [u8; 4] {
        let ninth = usize::from(self.qh[j] >> k & 1);
        IQ3_S.point(usize::from(self.qs[8 * j + k]) | ninth << 8)
    }
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 1.0;

    fn d(&self) -> Half {
        self.d
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        [odd(self.scales[j / 2] >> (j % 2 * 4)); 2]
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let mut q = [0; 32];
        for (k, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            *q = codes(self.point(j, 2 * k), self.point(j, 2 * k + 1), self.signs[4 * j + k]);
        }
        q
    }
}

const SEARCH: Search<4> = Search { grid: &IQ3_S, n_steps: 9, step: 0.2, again: Again::AllIfAny };

/// Encode a block whose errors count by what `weights` returns for each sub-block.
///
/// Bit-equal to the reference but for blocks with a sub-block of zeros before others: there the
/// reference writes what follows 32 elements too early, and the block decodes to other numbers.
fn encode(x: &[f32; 256], weights: impl Fn(usize, &[f32; 32]) -> [f32; 32]) -> Block {
    let (mut block, mut fits) = (Block::zeroed(), [0.0; 8]);
    for (j, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let mut signed = Signed::any(x);
        let max = max(&signed.x);
        if max == 0.0 {
            continue;
        }
        let fit = SEARCH.run(&signed.x, &weights(j, x), max);
        if fit.scale < 0.0 {
            signed.turn();
        }
        fits[j] = fit.scale.abs();
        block.signs.as_chunks_mut().0[j] = signed.signs;
        for (k, point) in grid::numbers::<4, 32, 8>(&IQ3_S, &fit.levels).into_iter().enumerate() {
            block.qs[8 * j + k] = point as u8;
            block.qh[j] |= ((point >> 8) << k) as u8;
        }
    }
    let max_scale = largest(&fits);
    if max_scale > 0.0 {
        let d = max_scale / 31.0;
        // The factor lowers the error a little; it is the reference's.
        block.d = Half::from_f32(d * 1.033);
        let stored = fits.map(|fit| stored_scale(fit, 1.0 / d, 15));
        block.scales = core::array::from_fn(|j| stored[2 * j] | stored[2 * j + 1] << 4);
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
