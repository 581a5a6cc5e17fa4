//! IQ1, IQ2 and IQ3: codes that choose from a few values, with a scale for each 16 columns.
//!
//! Files choose points of grids; panels hold a code for each element, three bits where a type has
//! six values, four where it has sixteen. That takes up to two bits an element more than the file,
//! and no look-ups of points in the kernels: a byte shuffle turns codes into elements. Types of the
//! same values share panels.

use super::Format;
use super::layout::{BLOCK, Layout};
use super::planes::{Fours, ThreeBits, get, get_split, put};
use super::scales::{Bias, F16Rows, Factors, SubBlockScales, half, scale, sub_blocks};
use super::unpack::{biased, choose, join, look_up, ones, twos};
use crate::block::codes::Codes;
use crate::block::{iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs};
use crate::isa::Simd;
use bytemuck::Pod;
use core::marker::PhantomData;

/// Codes of three bits from blocks `B`.
pub(crate) struct SixValues<B>(PhantomData<B>);

/// Codes of four bits from blocks `B`.
pub(crate) struct SixteenValues<B>(PhantomData<B>);

#[allow(non_camel_case_types)]
pub(crate) type IQ1_S = SixValues<iq1_s::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ1_M = SixValues<iq1_m::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ2_XXS = SixValues<iq2_xxs::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ2_XS = SixValues<iq2_xs::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ2_S = SixValues<iq2_s::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ3_XXS = SixteenValues<iq3_xxs::Block>;
#[allow(non_camel_case_types)]
pub(crate) type IQ3_S = SixteenValues<iq3_s::Block>;

impl<B: Codes> Layout for SixValues<B> {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = SubBlockScales<i8>;
    type Quants = ThreeBits;
}

impl<B: Codes> Layout for SixteenValues<B> {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = SubBlockScales<i8>;
    type Quants = Fours;
}

/// Write the scales of row `lane` of block `j`.
fn pack_scales<B: Codes>(block: &B, j: usize, lane: usize, scales: &mut SubBlockScales<i8>) {
    for (row, scale) in scales.iter_mut().zip(block.scales(j)) {
        row[lane] = scale;
    }
}

/// Return the elements that the codes of row `lane` choose.
fn chosen<B: Codes>(
    lane: usize,
    d: &F16Rows,
    scales: &SubBlockScales<i8>,
    codes: [u8; BLOCK],
) -> [f32; BLOCK] {
    let d = half(d[lane]) * B::UNIT;
    core::array::from_fn(|k| {
        d * f32::from(scales[k / 16][lane]) * f32::from(B::VALUES[usize::from(codes[k] & 15)])
    })
}

impl<B: Codes + Pod> Format for SixValues<B> {
    type Block = B;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    const SUB_BLOCKS: bool = true;

    fn pack_head(block: &B, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d().bits();
    }

    fn pack(block: &B, j: usize, lane: usize, scales: &mut SubBlockScales<i8>, quants: &mut ThreeBits) {
        pack_scales(block, j, lane, scales);
        let codes = block.codes(j);
        put(&mut quants.low, lane, &codes.map(|code| code & 3));
        put(&mut quants.high, lane, &codes.map(|code| code >> 2));
    }

    fn decode(lane: usize, d: &F16Rows, scales: &SubBlockScales<i8>, quants: &ThreeBits) -> [f32; BLOCK] {
        chosen::<B>(lane, d, scales, get_split(&quants.low, &quants.high, lane))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &ThreeBits) -> [S::B; 8] {
        let codes = join(s, twos::<S, 0>(s, &quants.low), ones::<S, 2>(s, &quants.high));
        choose(s, const { &biased(&B::VALUES) }, codes)
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [scale(s, d, B::UNIT), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [scale, _]: [S::F; 2], scales: &SubBlockScales<i8>) -> Factors<S::F> {
        sub_blocks(s, scale, scales)
    }
}

impl<B: Codes + Pod> Format for SixteenValues<B> {
    type Block = B;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    const SUB_BLOCKS: bool = true;

    fn pack_head(block: &B, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d().bits();
    }

    fn pack(block: &B, j: usize, lane: usize, scales: &mut SubBlockScales<i8>, quants: &mut Fours) {
        pack_scales(block, j, lane, scales);
        put(quants, lane, &block.codes(j));
    }

    fn decode(lane: usize, d: &F16Rows, scales: &SubBlockScales<i8>, quants: &Fours) -> [f32; BLOCK] {
        chosen::<B>(lane, d, scales, get(quants, lane))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        look_up(s, const { &biased(&B::VALUES) }, quants)
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [scale(s, d, B::UNIT), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [scale, _]: [S::F; 2], scales: &SubBlockScales<i8>) -> Factors<S::F> {
        sub_blocks(s, scale, scales)
    }
}
