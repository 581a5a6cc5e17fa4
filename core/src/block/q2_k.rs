//! Q2_K: 256 elements in sub-blocks of 16, each with a scale and a minimum of 4 bits; 2 bits an
//! element.
//!
//! An element is `d * s * q - dmin * m`.
//!
//! ```text
//! byte   0 .. 15                 16 .. 79            80 81   82 83
//!        s, m of sub-blocks      quants, 2 bits      d       dmin
//!        (low, high nibble)
//! ```
//! Two bits an element and six more for each sixteen: 2.6 bits an element in all.

use bytemuck::{Pod, Zeroable};

use super::bits::Plane;
use super::codec::{Codec, Importance, sum_of_squares};
use super::f16::Half;
use super::round;
use super::search::{Affine, requantise, unsigned};

/// 256 elements in 84 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Scale (low nibble) and minimum (high nibble) of each sub-block.
    pub scales: [u8; 16],
    /// Two bits an element.
    pub qs: [u8; 64],
    /// The scale of the scales.
    pub d: Half,
    /// The scale of the minima.
    pub dmin: Half,
}

const SEARCH: Affine = Affine { largest: 3, first: -0.5, step: 0.1, steps: 15, error: f32::abs };

/// Return a nibble for `x`, where `max` becomes 15.
fn nibble(x: f32, max: f32) -> u8 {
    if max > 0.0 { (round::nearest(15.0 / max * x) & 15) as u8 } else { 0 }
}

impl Block {
    /// Return the quants of the two sub-blocks from 2j (`j` from 0 to 7).
    pub fn quants(&self, j: usize) -> [u8; 32] {
        Plane::TWO.sub_block(&self.qs, j)
    }
}

/// Round the quants again with the scales as stored, and return the block.
fn finish(x: &[f32; 256], scales: [u8; 16], d: f32, dmin: f32, q: &mut [u8; 256]) -> Block {
    let (d, dmin) = (Half::from_f32(d), Half::from_f32(dmin));
    for ((q, x), scale) in q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).zip(scales) {
        let (scale, min) = (f32::from(scale & 15), f32::from(scale >> 4));
        requantise(x, q, d.to_f32() * scale, dmin.to_f32() * min, SEARCH.largest);
    }
    Block { scales, qs: Plane::TWO.pack(q, 0), d, dmin }
}

impl Codec<256> for Block {
    fn load(&self, y: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (j, (y, scale)) in y.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate() {
            let (d, m) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
            *y = Plane::TWO.sub_block(&self.qs, j).map(|q| d * f32::from(q) - m);
        }
    }

    /// Search each sub-block with errors weighted by magnitude, then round again with the scales as
    /// stored.
    fn store(x: &[f32; 256]) -> Self {
        let (mut fits, mut q) = ([(0.0, 0.0); 16], [0; 256]);
        for ((fit, q), x) in fits.iter_mut().zip(q.as_chunks_mut::<16>().0).zip(x.as_chunks::<16>().0) {
            *fit = SEARCH.run(x, &x.map(f32::abs), q);
        }
        let largest = |a: f32, b: f32| if b > a { b } else { a };
        let max_scale = fits.iter().map(|fit| fit.0).fold(0.0, largest);
        let max_min = fits.iter().map(|fit| fit.1).fold(0.0, largest);

        let scales = fits.map(|(scale, min)| nibble(scale, max_scale) | nibble(min, max_min) << 4);
        finish(x, scales, max_scale / 15.0, max_min / 15.0, &mut q)
    }

    /// Search each sub-block, then search the scales of scales and of minima, where those of
    /// sub-blocks with large weights count more.
    fn store_important(x: &[f32; 256], importance: &Importance<'_, 256>) -> Self {
        let search = Affine::weighted(SEARCH.largest);
        let mean_square = sum_of_squares(x) / 256.0;
        let (mut scales, mut mins, mut sums, mut q) = ([0.0; 16], [0.0; 16], [0.0; 16], [0; 256]);
        for (j, (q, x)) in q.as_chunks_mut::<16>().0.iter_mut().zip(x.as_chunks::<16>().0).enumerate() {
            let w = importance.weights(j, x, mean_square);
            sums[j] = w.iter().fold(0.0, |sum, w| sum + w);
            (scales[j], mins[j]) = search.run(x, &w, q);
        }
        let (mut scale_q, mut min_q) = ([0; 16], [0; 16]);
        let d = unsigned(&scales, &sums, 15, &mut scale_q);
        let dmin = unsigned(&mins, &sums, 15, &mut min_q);
        finish(x, core::array::from_fn(|j| scale_q[j] | min_q[j] << 4), d, dmin, &mut q)
    }
}
