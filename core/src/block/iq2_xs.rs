//! IQ2_XS: 256 elements in sub-blocks of 16, each with a scale of 4 bits; 9 bits choose eight
//! magnitudes, 7 bits their signs.
//!
//! An element is `d * (2 s + 1) / 8 * magnitude`, where magnitudes are 8, 25 and 43.
//!
//! ```text
//! byte   0 1   2 .. 65                                    66 .. 73
//!        d     16 bits for each eight: grid point, signs  scales, 4 bits
//! ```
//! 2.31 bits an element in all. Encoding needs to know which errors matter.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, max, odd, stored_scale};
use super::f16::Half;
use super::grid::search::{Again, Search};
use super::grid::signs::{Signed, complete};
use super::grid::{self, IQ2_XS};
use super::iq2_xxs::{VALUES, codes};
use super::search::NEGLIGIBLE;

/// 256 elements in 74 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// For each eight elements, a grid point in the lowest 9 bits and signs in the others,
    /// little-endian.
    pub qs: [[u8; 2]; 32],
    /// Two scales a byte, the first in the low nibble.
    pub scales: [u8; 8],
}

impl Codes for Block {
    const VALUES: [i8; 16] = VALUES;
    const UNIT: f32 = 0.125;

    fn d(&self) -> Half {
        self.d
    }

    fn scales(&self, j: usize) -> [i8; 2] {
        [odd(self.scales[j]), odd(self.scales[j] >> 4)]
    }

    fn codes(&self, j: usize) -> [u8; 32] {
        let mut q = [0; 32];
        for (q, stored) in q.as_chunks_mut().0.iter_mut().zip(&self.qs[4 * j..]) {
            let stored = u16::from_le_bytes(*stored);
            *q = codes(IQ2_XS.point(usize::from(stored & 511)), complete((stored >> 9) as u8));
        }
        q
    }
}

const SEARCH: Search<8> = Search { grid: &IQ2_XS, n_steps: 9, step: 0.1, again: Again::OffGrid };

/// Return the scale of a sub-block with its points and signs as they are stored.
fn sub_block(x: &[f32; 16], w: &[f32; 16]) -> (f32, [u16; 2]) {
    let mut signed = Signed::even(x, w);
    let max = max(&signed.x);
    if max < NEGLIGIBLE {
        return (0.0, [0; 2]);
    }
    let fit = SEARCH.run(&signed.x, w, max);
    if fit.scale < 0.0 {
        signed.turn();
    }
    let points = grid::numbers::<8, 16, 2>(&IQ2_XS, &fit.levels);
    (fit.scale.abs(), core::array::from_fn(|k| points[k] | u16::from(signed.signs[k] & 127) << 9))
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
        let (mut fits, mut qs) = ([0.0; 16], [[0; 2]; 32]);
        let sub_blocks = x.as_chunks::<16>().0.iter().zip(qs.as_chunks_mut::<2>().0);
        for (j, (x, qs)) in sub_blocks.enumerate() {
            let (fit, stored) = sub_block(x, &importance.weights(j, x, mean_square));
            (fits[j], *qs) = (fit, stored.map(u16::to_le_bytes));
        }
        let max_scale = largest(&fits);
        if max_scale == 0.0 {
            return Block::zeroed();
        }
        let d = max_scale / 31.0;
        Block { d: Half::from_f32(d), qs, scales: scales(&fits, 1.0 / d) }
    }
}

/// Return sixteen scales of 4 bits in bytes.
pub fn scales(fits: &[f32; 16], inverse: f32) -> [u8; 8] {
    let stored = fits.map(|fit| stored_scale(fit, inverse, 15));
    core::array::from_fn(|j| stored[2 * j] | stored[2 * j + 1] << 4)
}
