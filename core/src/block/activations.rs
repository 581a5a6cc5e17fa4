//! A block of 32 quantised activations: in no file, but the other operand of every block in one.
//!
//! Weights have block formats because files have; activations are rounded to 8 bits anew for every
//! product, to the format here.

use super::BLOCK;
use bytemuck::{Pod, Zeroable};

/// Tokens whose blocks lie side by side: whole tiles of all kernels, of twelve and of sixteen
/// tokens.
pub(crate) const GROUP: usize = 48;

/// Thirty-two activations as the integer kernels read them.
///
/// `x ~ d * q`. Beside the quants stands what kernels would otherwise compute once a panel: the sum
/// that a minimum is multiplied by, and the *bias corrections*. Kernels multiply unsigned weights
/// that are 8 or 128 larger than their elements; a sum that starts from minus 8 or 128 times the
/// sum of the quants comes out as that of the elements.
///
/// Public only for its size and its place in kernel signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct QBlock {
    /// The scale: the largest absolute value over 127; 0 where all are 0 or too small for 127 over
    /// it to be finite; NaN where any is infinite or NaN.
    pub d: f32,
    /// `d` times the sum of `q`, rounded once: the factor of a block's minimum.
    pub sum: f32,
    /// -8 times the sum of `q`: the correction for weights stored plus 8.
    pub correction_8: i32,
    /// -128 times the sum of `q`: the correction for weights stored plus 128.
    pub correction_128: i32,
    /// The part of `correction_128` that the first sixteen quants contribute.
    pub first_correction_128: i32,
    /// `x * (127 / max)` rounded to the nearest integer, ties to even, as signed bytes; four to a
    /// word, lowest first.
    pub q: [i32; BLOCK / 4],
}
