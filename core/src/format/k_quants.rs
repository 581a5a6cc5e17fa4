//! Q2_K to Q6_K: super-blocks of 256 columns whose scales are quantised themselves.
//!
//! A super-block has a half-precision `d` (and `dmin`), its head, and a small integer scale (and
//! minimum) for each 32 columns (Q4_K, Q5_K) or for each sub-block of 16 columns (Q2_K, Q3_K,
//! Q6_K). An element is `d * scale * q - dmin * min`. Minima are turned in sign when Q4_K and Q5_K
//! are packed, because kernels add them.

use super::Format;
use super::layout::{BLOCK, Layout};
use super::planes::{FiveBits, Fours, SixBits, ThreeBits, Twos, get, get_split, put};
use super::scales::{
    Bias, F16Rows, Factors, ScaleMin, ScaleOffset, SubBlockMins, SubBlockScales, half, negated, scale,
    scale_min, sub_blocks,
};
use super::unpack::{fours, join, ones, twos};
use crate::block::{q2_k, q3_k, q4_k, q5_k, q6_k};
use crate::isa::Simd;

/// Two bits; scale and minimum of a sub-block in the nibbles of a byte.
#[allow(non_camel_case_types)]
pub(crate) struct Q2_K;

impl Layout for Q2_K {
    const BLOCKS: usize = 8;
    type Head = ScaleOffset;
    type Scales = SubBlockScales<u8>;
    type Quants = Twos;
}

impl Format for Q2_K {
    type Block = q2_k::Block;
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 2;
    const HAS_MIN: bool = true;
    const SUB_BLOCKS: bool = true;

    fn pack_head(block: &q2_k::Block, lane: usize, head: &mut ScaleOffset) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), block.dmin.bits());
    }

    fn pack(block: &q2_k::Block, j: usize, lane: usize, scales: &mut SubBlockScales<u8>, quants: &mut Twos) {
        for (sub_block, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scales[2 * j + sub_block];
        }
        put(quants, lane, &block.quants(j));
    }

    fn decode(lane: usize, head: &ScaleOffset, scales: &SubBlockScales<u8>, quants: &Twos) -> [f32; BLOCK] {
        let (d, dmin, q) = (half(head.d[lane]), half(head.m[lane]), get(quants, lane));
        core::array::from_fn(|k| {
            let scale = scales[k / 16][lane];
            d * f32::from(scale & 15) * f32::from(q[k]) - dmin * f32::from(scale >> 4)
        })
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Twos) -> [S::B; 8] {
        twos::<S, 0>(s, quants)
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, head: &ScaleOffset) -> [S::F; 2] {
        [s.load_f16(&head.d), scale(s, &head.m, 1.0 / 128.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [scale, of_mins]: [S::F; 2], scales: &SubBlockScales<u8>) -> Factors<S::F> {
        let (first, second) = (s.widen_u8(&scales[0]), s.widen_u8(&scales[1]));
        let low = s.isplat(15);
        let scales = [s.to_float(s.iand(first, low)), s.to_float(s.iand(second, low))];
        let mins = [s.to_float(s.ishr::<4>(first)), s.to_float(s.ishr::<4>(second))];
        Factors::SubBlocks { scale, scales, mins: Some(SubBlockMins { scale: of_mins, mins }) }
    }
}

/// Return row `lane` of a block with signed sub-block scales and elements centred at `offset`.
fn centred(
    lane: usize,
    d: &F16Rows,
    scales: &SubBlockScales<i8>,
    q: [u8; BLOCK],
    offset: i32,
) -> [f32; BLOCK] {
    let d = half(d[lane]);
    core::array::from_fn(|k| d * f32::from(scales[k / 16][lane]) * (i32::from(q[k]) - offset) as f32)
}

/// Three bits, 4 more than the elements; the bytes of kernels are `32 (q - 4) + 128`.
#[allow(non_camel_case_types)]
pub(crate) struct Q3_K;

impl Layout for Q3_K {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = SubBlockScales<i8>;
    type Quants = ThreeBits;
}

impl Format for Q3_K {
    type Block = q3_k::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 3;
    const SHIFT: u32 = 5;
    const SUB_BLOCKS: bool = true;

    fn pack_head(block: &q3_k::Block, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d.bits();
    }

    fn pack(
        block: &q3_k::Block,
        j: usize,
        lane: usize,
        scales: &mut SubBlockScales<i8>,
        quants: &mut ThreeBits,
    ) {
        for (sub_block, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scale(2 * j + sub_block);
        }
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }

    fn decode(lane: usize, d: &F16Rows, scales: &SubBlockScales<i8>, quants: &ThreeBits) -> [f32; BLOCK] {
        centred(lane, d, scales, get_split(&quants.low, &quants.high, lane), 4)
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &ThreeBits) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, twos::<S, 0>(s, &quants.low), ones::<S, 2>(s, &quants.high));
        }
        join(s, twos::<S, 5>(s, &quants.low), ones::<S, 7>(s, &quants.high))
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [scale(s, d, 1.0 / 32.0), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [scale, _]: [S::F; 2], scales: &SubBlockScales<i8>) -> Factors<S::F> {
        sub_blocks(s, scale, scales)
    }
}

/// Return row `lane` of a block with one scale and one minimum.
fn offset(lane: usize, head: &ScaleOffset, s: &ScaleMin, q: [u8; BLOCK]) -> [f32; BLOCK] {
    let d = half(head.d[lane]) * f32::from(s.scale[lane]);
    let min = half(head.m[lane]) * f32::from(s.min[lane]);
    q.map(|q| d * f32::from(q) + min)
}

/// Four bits with a scale and a minimum a block.
#[allow(non_camel_case_types)]
pub(crate) struct Q4_K;

impl Layout for Q4_K {
    const BLOCKS: usize = 8;
    type Head = ScaleOffset;
    type Scales = ScaleMin;
    type Quants = Fours;
}

impl Format for Q4_K {
    type Block = q4_k::Block;
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 4;
    const HAS_MIN: bool = true;

    fn pack_head(block: &q4_k::Block, lane: usize, head: &mut ScaleOffset) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), negated(block.dmin.bits()));
    }

    fn pack(block: &q4_k::Block, j: usize, lane: usize, scales: &mut ScaleMin, quants: &mut Fours) {
        (scales.scale[lane], scales.min[lane]) = block.scale_min(j);
        put(quants, lane, &block.quants(j));
    }

    fn decode(lane: usize, head: &ScaleOffset, scales: &ScaleMin, quants: &Fours) -> [f32; BLOCK] {
        offset(lane, head, scales, get(quants, lane))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, head: &ScaleOffset) -> [S::F; 2] {
        [s.load_f16(&head.d), s.load_f16(&head.m)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, head: [S::F; 2], scales: &ScaleMin) -> Factors<S::F> {
        scale_min(s, head, scales)
    }
}

/// Five bits with a scale and a minimum a block.
#[allow(non_camel_case_types)]
pub(crate) struct Q5_K;

impl Layout for Q5_K {
    const BLOCKS: usize = 8;
    type Head = ScaleOffset;
    type Scales = ScaleMin;
    type Quants = FiveBits;
}

impl Format for Q5_K {
    type Block = q5_k::Block;
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 5;
    const HAS_MIN: bool = true;

    fn pack_head(block: &q5_k::Block, lane: usize, head: &mut ScaleOffset) {
        (head.d[lane], head.m[lane]) = (block.d.bits(), negated(block.dmin.bits()));
    }

    fn pack(block: &q5_k::Block, j: usize, lane: usize, scales: &mut ScaleMin, quants: &mut FiveBits) {
        (scales.scale[lane], scales.min[lane]) = block.scale_min(j);
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }

    fn decode(lane: usize, head: &ScaleOffset, scales: &ScaleMin, quants: &FiveBits) -> [f32; BLOCK] {
        offset(lane, head, scales, get_split(&quants.low, &quants.high, lane))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &FiveBits) -> [S::B; 8] {
        join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high))
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, head: &ScaleOffset) -> [S::F; 2] {
        [s.load_f16(&head.d), s.load_f16(&head.m)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, head: [S::F; 2], scales: &ScaleMin) -> Factors<S::F> {
        scale_min(s, head, scales)
    }
}

/// Six bits, 32 more than the elements; the bytes of kernels are `4 (q - 32) + 128`.
#[allow(non_camel_case_types)]
pub(crate) struct Q6_K;

impl Layout for Q6_K {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = SubBlockScales<i8>;
    type Quants = SixBits;
}

impl Format for Q6_K {
    type Block = q6_k::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 6;
    const SHIFT: u32 = 2;
    const SUB_BLOCKS: bool = true;

    fn pack_head(block: &q6_k::Block, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d.bits();
    }

    fn pack(
        block: &q6_k::Block,
        j: usize,
        lane: usize,
        scales: &mut SubBlockScales<i8>,
        quants: &mut SixBits,
    ) {
        for (sub_block, scales) in scales.iter_mut().enumerate() {
            scales[lane] = block.scales[2 * j + sub_block];
        }
        let (low, high) = block.quants(j);
        put(&mut quants.low, lane, &low);
        put(&mut quants.high, lane, &high);
    }

    fn decode(lane: usize, d: &F16Rows, scales: &SubBlockScales<i8>, quants: &SixBits) -> [f32; BLOCK] {
        centred(lane, d, scales, get_split(&quants.low, &quants.high, lane), 32)
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &SixBits) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, fours::<S, 0>(s, &quants.low), twos::<S, 4>(s, &quants.high));
        }
        join(s, fours::<S, 2>(s, &quants.low), twos::<S, 6>(s, &quants.high))
    }

    #[inline(always)]
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [scale(s, d, 1.0 / 4.0), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, [scale, _]: [S::F; 2], scales: &SubBlockScales<i8>) -> Factors<S::F> {
        sub_blocks(s, scale, scales)
    }
}
