//! IQ4_NL, IQ4_XS, MXFP4 and NVFP4: nibbles that choose from a codebook of sixteen values.
//!
//! Kernels look the values up with a byte shuffle; the codebook holds them plus 128, so that they
//! are unsigned bytes with the usual bias.

use super::Format;
use super::layout::{BLOCK, Layout, Nothing, PANEL};
use super::planes::{Fours, get, put, put_nibbles};
use super::scales::{Bias, F16Rows, Factors, SubBlockScales, half, whole};
use super::unpack::{biased, look_up};
use crate::block::{iq4_nl, iq4_xs, mxfp4, nvfp4};
use crate::isa::Simd;
use half::bf16;

/// The values of IQ4_NL and IQ4_XS plus 128.
const UNEVEN: [u8; 16] = biased(&iq4_nl::VALUES);
/// Twice the values of MXFP4 and NVFP4, plus 128.
const SMALL_FLOATS: [u8; 16] = biased(&mxfp4::DOUBLED);

/// Return the values that row `lane` chooses.
fn chosen(quants: &Fours, lane: usize, values: &[i8; 16]) -> [f32; BLOCK] {
    get(quants, lane).map(|q| f32::from(values[usize::from(q)]))
}

/// Sixteen uneven values and a scale a block.
#[allow(non_camel_case_types)]
pub(crate) struct IQ4_NL;

impl Layout for IQ4_NL {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = F16Rows;
    type Quants = Fours;
}

impl Format for IQ4_NL {
    type Block = iq4_nl::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;

    fn pack(block: &iq4_nl::Block, _: usize, lane: usize, d: &mut F16Rows, quants: &mut Fours) {
        d[lane] = block.d.bits();
        put_nibbles(quants, lane, &block.qs);
    }

    fn decode(lane: usize, _: &Nothing, d: &F16Rows, quants: &Fours) -> [f32; BLOCK] {
        chosen(quants, lane, &iq4_nl::VALUES).map(|w| half(d[lane]) * w)
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        look_up(s, &UNEVEN, quants)
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], d: &F16Rows) -> Factors<S::F> {
        whole(s, d, 1.0)
    }
}

/// The values of IQ4_NL in super-blocks of 256, with a signed 6-bit scale a block.
#[allow(non_camel_case_types)]
pub(crate) struct IQ4_XS;

impl Layout for IQ4_XS {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = [i8; PANEL];
    type Quants = Fours;
}

impl Format for IQ4_XS {
    type Block = iq4_xs::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;

    fn pack_head(block: &iq4_xs::Block, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d.bits();
    }

    fn pack(block: &iq4_xs::Block, j: usize, lane: usize, scales: &mut [i8; PANEL], quants: &mut Fours) {
        scales[lane] = block.scale(j) as i8;
        put_nibbles(quants, lane, &block.qs.as_chunks().0[j]);
    }

    fn decode(lane: usize, d: &F16Rows, scales: &[i8; PANEL], quants: &Fours) -> [f32; BLOCK] {
        let d = half(d[lane]) * f32::from(scales[lane]);
        chosen(quants, lane, &iq4_nl::VALUES).map(|w| d * w)
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        look_up(s, &UNEVEN, quants)
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [s.load_f16(d), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [d, _]: [S::F; 2], scales: &[i8; PANEL]) -> Factors<S::F> {
        let scale = s.mul(d, s.to_float(s.load_i8(scales)));
        Factors::Whole { scale, min: None }
    }
}

/// 4-bit floats (E2M1) whose scale is a power of two. The codebook holds twice the values and the
/// scale is halved, both exactly; a power of two has no bits below those of bfloat16.
#[allow(non_camel_case_types)]
pub(crate) struct MXFP4;

impl Layout for MXFP4 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = F16Rows;
    type Quants = Fours;
}

impl Format for MXFP4 {
    type Block = mxfp4::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;

    fn pack(block: &mxfp4::Block, _: usize, lane: usize, scales: &mut F16Rows, quants: &mut Fours) {
        scales[lane] = (block.half_scale().to_bits() >> 16) as u16;
        put_nibbles(quants, lane, &block.qs);
    }

    fn decode(lane: usize, _: &Nothing, scales: &F16Rows, quants: &Fours) -> [f32; BLOCK] {
        let scale = bf16::from_bits(scales[lane]).to_f32();
        chosen(quants, lane, &mxfp4::DOUBLED).map(|w| w * scale)
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        look_up(s, &SMALL_FLOATS, quants)
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], scales: &F16Rows) -> Factors<S::F> {
        Factors::Whole { scale: s.load_bf16(scales), min: None }
    }
}

/// 4-bit floats (E2M1) with a scale for each 16 columns that is a small float too. Half of it is
/// exact in half precision.
#[allow(non_camel_case_types)]
pub(crate) struct NVFP4;

impl Layout for NVFP4 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = SubBlockScales<u16>;
    type Quants = Fours;
}

impl Format for NVFP4 {
    type Block = nvfp4::Block;
    const FILE_BLOCKS: usize = 2;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    const SUB_BLOCKS: bool = true;

    fn pack(
        block: &nvfp4::Block,
        j: usize,
        lane: usize,
        scales: &mut SubBlockScales<u16>,
        quants: &mut Fours,
    ) {
        for (i, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.half_scale(2 * j + i).to_bits();
        }
        put(quants, lane, &block.quants(j));
    }

    fn decode(lane: usize, _: &Nothing, scales: &SubBlockScales<u16>, quants: &Fours) -> [f32; BLOCK] {
        let values = chosen(quants, lane, &mxfp4::DOUBLED);
        core::array::from_fn(|k| values[k] * half(scales[k / 16][lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        look_up(s, &SMALL_FLOATS, quants)
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], scales: &SubBlockScales<u16>) -> Factors<S::F> {
        let scales = [s.load_f16(&scales[0]), s.load_f16(&scales[1])];
        Factors::SubBlocks { scale: s.splat(1.0), scales, mins: None }
    }
}
