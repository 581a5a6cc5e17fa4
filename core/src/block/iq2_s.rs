//! IQ2_S: 256 elements in sub-blocks of 16, each with a scale of 4 bits; 10 bits choose eight
//! magnitudes, 8 bits are their signs.
//!
//! An element is `d * (2 s + 1) / 8 * magnitude`, where magnitudes are 8, 25 and 43.
//!
//! ```text
//! byte   0 1   2 .. 33                     34 .. 65   66 .. 73              74 .. 81
//!        d     grid points, lower 8 bits   signs      their upper two bits  scales, 4 bits
//! ```
//! 2.56 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::codec::{Codec, Importance, sum_of_squares};
use super::codes::{self, Codes, largest, max, odd};
use super::f16::Half;
use super::grid::search::{Again, Search};
use super::grid::signs::Signed;
use super::grid::{self, IQ2_S};
use super::iq2_xs::scales;
use super::iq2_xxs::{VALUES, codes};

/// 256 elements in 82 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale of the scales.
    pub d: Half,
    /// The lower eight bits of a grid point for each eight elements.
    pub qs: [u8; 32],
    /// The signs of each eight elements.
    pub signs: [u8; 32],
    /// The upper two bits of four grid points a byte, the first lowest.
    pub qh: [u8; 8],
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
        for (k, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
            let upper = usize::from(self.qh[j] >> (2 * k) & 3);
            let point = IQ2_S.point(usize::from(self.qs[4 * j + k]) | upper << 8);
            *q = codes(point, self.signs[4 * j + k]);
        }
        q
    }
}

const SEARCH: Search<8> = Search { grid: &IQ2_S, n_steps: 9, step: 0.1, again: Again::OffGrid };

/// Return the scale of a sub-block with its points and signs.
fn sub_block(x: &[f32; 16], w: &[f32; 16]) -> (f32, [u16; 2], [u8; 2]) {
    let mut signed = Signed::any(x);
    let max = max(&signed.x);
    let mut fit = (0.0, [0; 2]);
    if max >= 1e-8 {
        let found = SEARCH.run(&signed.x, w, max);
        if found.scale < 0.0 {
            signed.turn();
        }
        fit = (found.scale.abs(), grid::numbers::<8, 16, 2>(&IQ2_S, &found.levels));
    } else {
        signed.signs = [0; 4];
    }
    (fit.0, fit.1, [signed.signs[0], signed.signs[1]])
}

/// Encode a block whose errors count by what `weights` returns for each sub-block.
fn encode(x: &[f32; 256], weights: impl Fn(usize, &[f32; 16]) -> [f32; 16]) -> Block {
    let (mut block, mut fits) = (Block::zeroed(), [0.0; 16]);
    for (j, x) in x.as_chunks::<16>().0.iter().enumerate() {
        let (fit, points, signs) = sub_block(x, &weights(j, x));
        fits[j] = fit;
        for (k, (point, signs)) in points.into_iter().zip(signs).enumerate() {
            let group = 2 * j + k;
            block.qs[group] = point as u8;
            block.signs[group] = signs;
            block.qh[group / 4] |= ((point >> 8) << (2 * (group % 4))) as u8;
        }
    }
    let max_scale = largest(&fits);
    if max_scale > 0.0 {
        let d = max_scale / 31.0;
        // The factor lowers the error a little; it is the reference's.
        block.d = Half::from_f32(d * 0.9875);
        block.scales = scales(&fits, 1.0 / d);
    }
    block
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        codes::load(self, y);
    }

    fn store(x: &[f32; 256]) -> Self {
        let mean_square = 2.0 * sum_of_squares(x) / 256.0;
        encode(x, |_, x| x.map(|x| 0.25 * mean_square + x * x))
    }

    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let mean_square = 2.0 * sum_of_squares(x) / 256.0;
        encode(x, |j, x| importance.weights(j, x, mean_square))
    }
}
