//! Scales of sixteen rows, and the factors that kernels make of them.

use super::layout::PANEL;
use crate::isa::Simd;
use bytemuck::{Pod, Zeroable};
use half::f16;

/// The difference between the bytes that kernels multiply and the elements they stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bias {
    /// None; bytes are at most 127.
    None,
    /// Bytes are 8 more; at most 127.
    Eight,
    /// Bytes are 128 more.
    Signed,
}

impl Bias {
    /// Return the difference as a number.
    #[cfg(any(
        all(target_arch = "x86_64", feature = "amx"),
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
    ))]
    #[inline(always)]
    pub(crate) fn by(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Eight => 8,
            Self::Signed => 128,
        }
    }
}

/// The floats that the integer sums of a block are multiplied by, for each row of a panel.
#[derive(Clone, Copy)]
pub(crate) enum Factors<F> {
    /// One scale for the block: `acc = fma(sum, scale * d_x, acc)`, then, with a minimum,
    /// `acc = fma(min, sum_x, acc)`.
    Whole {
        /// The scale.
        scale: F,
        /// The minimum, if the format has one.
        min: Option<F>,
    },
    /// Sub-blocks of sixteen columns with a scale each. Sub-block scales are small integers, so
    /// `sum_0 * scales[0] + sum_1 * scales[1]` is exact, and the block is rounded once:
    /// `acc = fma(sum_0 * scales[0] + sum_1 * scales[1], scale * d_x, acc)`.
    SubBlocks {
        /// The scale of the super-block.
        scale: F,
        /// The sub-block scales.
        scales: [F; 2],
        /// The sub-block minima, if the format has them.
        mins: Option<SubBlockMins<F>>,
    },
}

/// Minima of the two sub-blocks of a block.
///
/// They are added as `acc = fma(c_0 * mins[0] + c_1 * mins[1], scale * d_x, acc)`, where `c` is the
/// bias correction of a sub-block's activations, -128 times their sum: the number is at hand, and
/// `scale` is 128 times smaller in turn, which is exact.
#[derive(Clone, Copy)]
pub(crate) struct SubBlockMins<F> {
    /// `dmin / 128`.
    pub scale: F,
    /// The minima, small integers.
    pub mins: [F; 2],
}

/// Half-precision numbers of sixteen rows, as bits.
pub(crate) type F16Rows = [u16; PANEL];

/// A scale and what is added to each element, for sixteen rows. In super-blocks, the factors of the
/// block scales and of the block minima.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ScaleOffset {
    /// The scales.
    pub d: F16Rows,
    /// The offsets.
    pub m: F16Rows,
}

/// The 6-bit scale and minimum of a block of Q4_K or Q5_K, for sixteen rows.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ScaleMin {
    /// The scales.
    pub scale: [u8; PANEL],
    /// The minima.
    pub min: [u8; PANEL],
}

/// The scales of the first and of the last sixteen columns of a block, for sixteen rows.
pub(crate) type SubBlockScales<T> = [[T; PANEL]; 2];

/// Return the number with these half-precision bits.
pub(super) fn half(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// Return these half-precision bits with the sign turned: files subtract minima, kernels add them.
pub(super) fn negated(bits: u16) -> u16 {
    bits ^ 0x8000
}

/// Return `d * of`; `of` is a power of two, so the product is exact.
#[inline(always)]
pub(super) fn scale<S: Simd>(s: S, d: &F16Rows, of: f32) -> S::F {
    let d = s.load_f16(d);
    if of == 1.0 { d } else { s.mul(d, s.splat(of)) }
}

/// Return one scale for the whole block, `d * of`, like [`scale`].
#[inline(always)]
pub(super) fn whole<S: Simd>(s: S, d: &F16Rows, of: f32) -> Factors<S::F> {
    Factors::Whole { scale: scale(s, d, of), min: None }
}

/// Return a scale and a minimum for the whole block.
#[inline(always)]
pub(super) fn with_offset<S: Simd>(s: S, scales: &ScaleOffset) -> Factors<S::F> {
    Factors::Whole { scale: s.load_f16(&scales.d), min: Some(s.load_f16(&scales.m)) }
}

/// Return the factors of a block of Q4_K or Q5_K: `d * scale` and `-dmin * min`.
#[inline(always)]
pub(super) fn scale_min<S: Simd>(s: S, [d, m]: [S::F; 2], scales: &ScaleMin) -> Factors<S::F> {
    let scale = s.mul(d, s.to_float(s.widen_u8(&scales.scale)));
    let min = s.mul(m, s.to_float(s.widen_u8(&scales.min)));
    Factors::Whole { scale, min: Some(min) }
}

/// Return the factors of a block with signed sub-block scales.
#[inline(always)]
pub(super) fn sub_blocks<S: Simd>(s: S, scale: S::F, [first, second]: &SubBlockScales<i8>) -> Factors<S::F> {
    let scales = [s.to_float(s.load_i8(first)), s.to_float(s.load_i8(second))];
    Factors::SubBlocks { scale, scales, mins: None }
}
