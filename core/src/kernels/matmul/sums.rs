//! The sum of a block: the steps that all integer kernels share.
//!
//! Kernels for few tokens, for many tokens, and for tiles differ in what they keep in registers and
//! in which order they read. The operations on one output are these, in this order, in all of them:
//! an exact integer sum that starts from a bias correction, then one rounding for the scale and one
//! for the minimum.

use crate::block::activations::QBlock;
use crate::format::layout;
use crate::format::{Bias, Format, SubBlockMins};
use crate::isa::Simd;

/// Return the integer that a sum starts from; `correction` is the bias correction for weights
/// stored plus 128, -128 times the sum of the activations that will be met.
#[inline(always)]
pub(super) fn start<S: Simd, Q: Format>(s: S, x: &QBlock, correction: i32) -> S::I {
    match Q::BIAS {
        Bias::None => s.isplat(0),
        Bias::Eight => s.isplat(x.correction_8),
        Bias::Signed if const { has_few_bits::<S, Q>() } => s.isplat(correction),
        Bias::Signed => s.start_biased(correction),
    }
}

/// Return true if the set sums products of few bits sooner and the format has few: its vectors then
/// hold the bits alone.
pub(super) const fn has_few_bits<S: Simd, Q: Format>() -> bool {
    S::FEW_BITS && Q::BITS < 8
}

/// Add the sums of a block to the accumulators, rounding once for the scale and once for the
/// minimum.
#[inline(always)]
pub(super) fn scale_sums<S: Simd, const G: usize>(
    s: S,
    sums: [S::I; G],
    (scale, min): (S::F, Option<S::F>),
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    for i in 0..G {
        acc[i] = s.fma(s.to_float(sums[i]), s.mul(scale, s.splat(x[i].d)), acc[i]);
        if let Some(min) = min {
            acc[i] = s.fma(min, s.splat(x[i].sum), acc[i]);
        }
    }
}

/// Add the minima of the two sub-blocks.
#[inline(always)]
pub(super) fn minima<S: Simd, const G: usize>(
    s: S,
    mins: SubBlockMins<S::F>,
    x: &[QBlock; G],
    acc: &mut [S::F; G],
) {
    for i in 0..G {
        let first = s.to_float(s.isplat(x[i].first_correction_128));
        let second = s.to_float(s.isplat(x[i].correction_128.wrapping_sub(x[i].first_correction_128)));
        let total = s.fma(second, mins.mins[1], s.mul(first, mins.mins[0]));
        acc[i] = s.fma(total, s.mul(mins.scale, s.splat(x[i].d)), acc[i]);
    }
}

/// Return the panels in `w`, each of `n_blocks` blocks.
#[inline(always)]
pub(super) fn panels<Q: Format>(w: &[u8], n_blocks: usize) -> core::slice::ChunksExact<'_, u8> {
    w.chunks_exact(layout::panel_bytes::<Q>(n_blocks).max(1))
}
