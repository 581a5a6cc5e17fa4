//! The quantised types as kernels see them: how they lie in a panel, and what a block is worth.
//!
//! [`crate::block`] knows how a type lies in a GGUF *file*, row by row; this module knows how it
//! lies in a *panel*, sixteen rows interleaved, and how kernels multiply by it. Every type is a
//! unit struct that implements [`Layout`] (the types of a head, of a block's scales and of its
//! elements) and [`Format`] (packing a file's block, reading a row back, and the operands of the
//! kernels). The kernels in [`crate::kernels::matmul`] are generic over `Format`; none of them
//! names a type.
//!
//! | file | types |
//! |---|---|
//! | `legacy.rs` | Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with a scale each |
//! | `k_quants.rs` | Q2_K to Q6_K: super-blocks of 256 with quantised scales |
//! | `codebook.rs` | IQ4_NL, IQ4_XS, MXFP4, NVFP4: nibbles that choose from sixteen values |
//! | `grids.rs` | IQ1, IQ2, IQ3: as many bits as their codes need |
//! | `ternary.rs` | TQ1_0, TQ2_0, Q1_0, Q2_0: two bits |
//!
//! `docs/adding-a-quantised-type.md` shows what a new type takes.

mod codebook;
mod grids;
mod k_quants;
pub(crate) mod layout;
mod legacy;
pub(crate) mod planes;
mod scales;
mod ternary;
mod unpack;

pub(crate) use codebook::*;
pub(crate) use grids::*;
pub(crate) use k_quants::*;
pub(crate) use legacy::*;
pub(crate) use scales::{Bias, Factors, SubBlockMins};
pub(crate) use ternary::*;

use crate::isa::Simd;
use bytemuck::Pod;
use layout::{BLOCK, Layout};

/// A quantised type in panels.
///
/// # The arithmetic of a block
/// A kernel multiplies 32 columns at a time. It takes the elements as eight vectors of unsigned
/// bytes ([`Format::vectors`]), sums their products with 8-bit activations exactly in 32-bit lanes,
/// and then rounds once a block, in the order that [`crate::matmul`] defines:
///
/// ```text
/// acc = fma(sum, scale * d_x, acc)
/// ```
///
/// Two details make this exact on every instruction set:
///
/// - Instructions want unsigned weights, elements may be signed. The bytes are then larger than the
///   elements by a constant, [`Format::BIAS`], and the sum starts from a *bias correction*, minus
///   that constant times the sum of the activations, which comes with the activations.
/// - Elements of 3, 5 or 6 bits are centred at a power of two that is not 128. Their bytes are
///   filled from the top, `2^SHIFT` times too large, so that the bias becomes 128; the scale takes
///   the power of two back without rounding. Sets that sum products of few bits sooner
///   ([`Simd::FEW_BITS`]) get the bits alone and shift the sum instead.
pub(crate) trait Format: Layout {
    /// The block of this type in a file.
    type Block: Pod;
    /// Blocks of 32 columns in a file's block: as many as share a head, or a multiple.
    const FILE_BLOCKS: usize = Self::BLOCKS;

    /// The difference between bytes and elements.
    const BIAS: Bias;
    /// Bits of an element, if its byte holds nothing else; 8 for codebooks and Q8_0.
    const BITS: u32;
    /// Bits by which the bytes are shifted up; 0 where [`Simd::FEW_BITS`].
    const SHIFT: u32 = 0;
    /// True if each sixteen columns have a scale: [`Format::factors`] are [`Factors::SubBlocks`].
    const SUB_BLOCKS: bool = false;
    /// True if [`Format::factors`] have minima.
    const HAS_MIN: bool = false;

    /// Write row `lane` of a head from a file's block; all heads of a block are equal.
    fn pack_head(_block: &Self::Block, _lane: usize, _head: &mut Self::Head) {}

    /// Write row `lane` of block `j` (32 columns) of a file's block.
    fn pack(block: &Self::Block, j: usize, lane: usize, scales: &mut Self::Scales, quants: &mut Self::Quants);

    /// Return row `lane` of a block as floats: the bits that decoding the file's block gives.
    fn decode(lane: usize, head: &Self::Head, scales: &Self::Scales, quants: &Self::Quants) -> [f32; BLOCK];

    /// Return the elements of a block as eight vectors: vector `g` holds four columns from `4g` of
    /// each row.
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8];

    /// Return the floats of a head, which all its blocks share: the scale, and the factor of the
    /// minima. What a type does not have is 0; a type that has heads implements this.
    #[inline(always)]
    fn head<S: Simd>(s: S, _head: &Self::Head) -> [S::F; 2] {
        const { assert!(size_of::<Self::Head>() == 0, "heads have floats") }
        [s.splat(0.0); 2]
    }

    /// Return the factors of a block with such a head.
    fn factors<S: Simd>(s: S, head: [S::F; 2], scales: &Self::Scales) -> Factors<S::F>;
}
