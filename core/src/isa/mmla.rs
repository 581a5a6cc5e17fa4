//! Products of I8MM: two tokens times two rows, eight columns at a time, in one instruction.
//!
//! `smmla` takes a 2 x 8 matrix of activations and a 2 x 8 matrix of weights, both signed bytes,
//! and adds their 2 x 2 products to four 32-bit sums. Rows of a panel are therefore unpacked two by
//! two, eight columns each, and scales and minima twice over, so that one vector holds the factors
//! of two rows and two tokens.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use super::neon::{Mixed, Neon};
use super::simd::{LANES, Simd};
use crate::block::activations::QBlock;
use core::arch::aarch64::*;
use core::arch::asm;
use core::hint::black_box;

/// Tokens that are multiplied at once.
pub(crate) const TOKENS: usize = 4;

/// Thirty-two columns of a panel's sixteen rows, two by two, as the instruction reads them. All of
/// the first eight rows come first.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Block {
    /// For each half of the rows and eight columns four pairs of rows: eight signed bytes of one,
    /// then of the other.
    q: [[[[i8; 16]; 4]; 4]; 2],
    /// The scales, for each pair of rows and two tokens.
    scales: [[Quad; 4]; 2],
    /// The minima, for each pair of rows and two tokens.
    mins: [[Quad; 4]; 2],
}

/// Two rows of one token, then of another.
type Quad = [f32; 4];

/// The sums of four tokens: halves of the rows, pairs of tokens, pairs of rows.
pub(crate) type Sums = [[[Quad; 4]; 2]; 2];

/// The start of all sums.
pub(crate) const NOTHING: Sums = [[[[0.0; 4]; 4]; 2]; 2];

impl Block {
    /// A block of zeros.
    pub(crate) const ZERO: Self =
        Self { q: [[[[0; 16]; 4]; 4]; 2], scales: [[[0.0; 4]; 4]; 2], mins: [[[0.0; 4]; 4]; 2] };
}

/// Run intrinsics of NEON.
macro_rules! have {
    ($body:expr) => {
        // SAFETY: this file is compiled only for processors that have NEON; loads and stores go
        // through references to arrays as long as what is read or written, and ask for no
        // alignment.
        unsafe { $body }
    };
}

/// Store each of sixteen lanes twice, as pairs of rows.
#[inline(always)]
fn store_twice(x: [float32x4_t; 4], out: &mut [[Quad; 4]; 2]) {
    for (x, out) in x.into_iter().zip(out.as_flattened_mut().as_chunks_mut().0) {
        let [first, second]: &mut [Quad; 2] = out;
        have!({
            let x = vreinterpretq_f64_f32(x);
            vst1q_f32(first.as_mut_ptr(), vreinterpretq_f32_f64(vdupq_laneq_f64::<0>(x)));
            vst1q_f32(second.as_mut_ptr(), vreinterpretq_f32_f64(vdupq_laneq_f64::<1>(x)));
        });
    }
}

/// Return a number for one token and a number for another, each twice.
#[inline(always)]
fn two(first: f32, second: f32) -> float32x4_t {
    have!(vcombine_f32(vdup_n_f32(first), vdup_n_f32(second)))
}

/// Return the columns of two tokens, eight at a time.
#[inline(always)]
fn columns(tokens: [&QBlock; 2]) -> [int8x16_t; 4] {
    have!({
        let [a, b] = tokens.map(|x| vreinterpretq_s64_s32(vld1q_s32(x.q.as_ptr())));
        let [c, d] = tokens.map(|x| vreinterpretq_s64_s32(vld1q_s32(x.q.as_ptr().add(4))));
        [vzip1q_s64(a, b), vzip2q_s64(a, b), vzip1q_s64(c, d), vzip2q_s64(c, d)]
            .map(|x| vreinterpretq_s8_s64(x))
    })
}

/// Add the sums of a block and two tokens, times its factors.
#[inline(always)]
fn finish(
    sums: [int32x4_t; 4],
    scales: &[Quad; 4],
    mins: Option<&[Quad; 4]>,
    [first, second]: [&QBlock; 2],
    acc: &mut [float32x4_t; 4],
) {
    let d = two(first.d, second.d);
    for ((acc, sums), scale) in acc.iter_mut().zip(sums).zip(scales) {
        have!({
            let scale = vmulq_f32(vld1q_f32(scale.as_ptr()), d);
            *acc = vfmaq_f32(*acc, vcvtq_f32_s32(sums), scale);
        });
    }
    if let Some(mins) = mins {
        let sum = two(first.sum, second.sum);
        for (acc, min) in acc.iter_mut().zip(mins) {
            have!(*acc = vfmaq_f32(*acc, vld1q_f32(min.as_ptr()), sum));
        }
    }
}

impl Neon<Mixed> {
    /// Add the products of two tokens (rows of `x`) and two rows of weights (those of `w`), eight
    /// columns of each.
    #[inline(always)]
    fn multiply_pairs(self, mut acc: int32x4_t, x: int8x16_t, w: int8x16_t) -> int32x4_t {
        // SAFETY: a `Neon<Mixed>` is made only in functions compiled for its features, which run
        // only after detection; the instruction changes `acc` and nothing else.
        unsafe {
            asm!(
                "smmla {acc:v}.4s, {x:v}.16b, {w:v}.16b",
                acc = inout(vreg) acc,
                x = in(vreg) x,
                w = in(vreg) w,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        acc
    }

    /// Multiply in registers: the limit of this processor's products. Return the number of
    /// multiplications and additions.
    #[inline(always)]
    pub(crate) fn multiply_in_registers(self, n_rounds: usize) -> u64 {
        const N: usize = 12;
        let (w, x) = have!((vdupq_n_s8(black_box(3)), vdupq_n_s8(black_box(5))));
        // Each starts from another number, or the compiler might find out that one sum is enough.
        let mut sums: [int32x4_t; N] = core::array::from_fn(|i| have!(vdupq_n_s32(i as i32)));
        for _ in 0..n_rounds {
            for sum in &mut sums {
                *sum = self.multiply_pairs(*sum, x, w);
            }
        }
        black_box(sums);
        // Two tokens, two rows and eight columns each.
        2 * (N * 2 * 2 * 8 * n_rounds) as u64
    }

    /// Write a block: eight vectors of four columns each, of bytes that are `less` too large, and
    /// its factors.
    #[inline(always)]
    pub(crate) fn store_block(
        self,
        vectors: [<Self as Simd>::B; 8],
        less: u8,
        scale: <Self as Simd>::F,
        min: Option<<Self as Simd>::F>,
        out: &mut Block,
    ) {
        for group in 0..4 {
            for quarter in 0..4 {
                have!({
                    let [a, b] = [0, 1].map(|i| {
                        let bytes = vsubq_u8(vectors[2 * group + i][quarter], vdupq_n_u8(less));
                        vreinterpretq_s32_u8(bytes)
                    });
                    let rows = &mut out.q[quarter / 2][group];
                    let first = &mut rows[2 * (quarter % 2)];
                    vst1q_s8(first.as_mut_ptr(), vreinterpretq_s8_s32(vzip1q_s32(a, b)));
                    let second = &mut rows[2 * (quarter % 2) + 1];
                    vst1q_s8(second.as_mut_ptr(), vreinterpretq_s8_s32(vzip2q_s32(a, b)));
                });
            }
        }
        store_twice(scale, &mut out.scales);
        if let Some(min) = min {
            store_twice(min, &mut out.mins);
        }
    }

    /// Add the products of blocks with four tokens: block i meets `x[i * stride..][..4]`. The
    /// operations on every sum and their order are those of all products.
    #[inline(always)]
    pub(crate) fn add_blocks<const MINIMA: bool>(
        self,
        w: &[Block],
        x: &[QBlock],
        stride: usize,
        sums: &mut Sums,
    ) {
        for (half, sums) in sums.iter_mut().enumerate() {
            let mut acc = sums.map(|pairs| pairs.map(|quad| have!(vld1q_f32(quad.as_ptr()))));
            for (w, x) in w.iter().zip(x.chunks(stride)) {
                let Some([a, b, c, d]) = x.first_chunk::<TOKENS>() else { break };
                self.add_half::<MINIMA>(w, half, [[a, b], [c, d]], &mut acc);
            }
            for (acc, sums) in acc.iter().zip(sums) {
                for (acc, sums) in acc.iter().zip(sums) {
                    have!(vst1q_f32(sums.as_mut_ptr(), *acc));
                }
            }
        }
    }

    /// Add one block, eight rows of it.
    #[inline(always)]
    fn add_half<const MINIMA: bool>(
        self,
        w: &Block,
        half: usize,
        tokens: [[&QBlock; 2]; 2],
        acc: &mut [[float32x4_t; 4]; 2],
    ) {
        let [first, second] = [columns(tokens[0]), columns(tokens[1])];
        let [a, b, c, d] = &w.q[half];
        let mut sums = [[have!(vdupq_n_s32(0)); 4]; 2];
        self.add_columns(a, [first[0], second[0]], &mut sums);
        self.add_columns(b, [first[1], second[1]], &mut sums);
        self.add_columns(c, [first[2], second[2]], &mut sums);
        self.add_columns(d, [first[3], second[3]], &mut sums);
        let (scales, mins) = (&w.scales[half], MINIMA.then_some(&w.mins[half]));
        finish(sums[0], scales, mins, tokens[0], &mut acc[0]);
        finish(sums[1], scales, mins, tokens[1], &mut acc[1]);
    }

    /// Multiply eight columns of eight rows and four tokens. Straight code: the compiler leaves a
    /// loop rolled up, with the sums in memory.
    #[inline(always)]
    fn add_columns(self, w: &[[i8; 16]; 4], [x, y]: [int8x16_t; 2], sums: &mut [[int32x4_t; 4]; 2]) {
        let [a, b, c, d] = w.each_ref().map(|w| have!(vld1q_s8(w.as_ptr())));
        let [[e, f, g, h], [i, j, k, l]] = *sums;
        let first = [
            self.multiply_pairs(e, x, a),
            self.multiply_pairs(f, x, b),
            self.multiply_pairs(g, x, c),
            self.multiply_pairs(h, x, d),
        ];
        let second = [
            self.multiply_pairs(i, y, a),
            self.multiply_pairs(j, y, b),
            self.multiply_pairs(k, y, c),
            self.multiply_pairs(l, y, d),
        ];
        *sums = [first, second];
    }

    /// Return the sums of token `token` of four.
    #[inline(always)]
    pub(crate) fn lanes(self, sums: &Sums, token: usize) -> <Self as Simd>::F {
        let mut lanes = [0.0; LANES];
        for (i, lanes) in lanes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let quad = &sums[i / 4][token / 2][i % 4];
            lanes.copy_from_slice(&quad[token % 2 * 2..][..2]);
        }
        self.load(&lanes)
    }
}

#[cfg(test)]
mod tests;
