//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 columns, each with its own scale.
//!
//! In a panel a block's scales are half-precision numbers of sixteen rows, with a second sixteen of
//! offsets in Q4_1 and Q5_1.

use super::Format;
use super::layout::{BLOCK, Layout, Nothing};
use super::planes::{FiveBits, Fours, Line, get, get_split, put, put_nibbles};
use super::scales::{Bias, F16Rows, Factors, ScaleOffset, half, whole, with_offset};
use super::unpack::{fours, join, ones};
use crate::block::{q4_0, q4_1, q5_0, q5_1, q8_0};
use crate::isa::Simd;

/// Signed bytes, stored plus 128.
#[allow(non_camel_case_types)]
pub(crate) struct Q8_0;

impl Layout for Q8_0 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = F16Rows;
    type Quants = [Line; 8];
}

impl Format for Q8_0 {
    type Block = q8_0::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;

    fn pack(block: &q8_0::Block, _: usize, lane: usize, d: &mut F16Rows, quants: &mut [Line; 8]) {
        d[lane] = block.d.bits();
        let bytes: &[u8; BLOCK] = bytemuck::must_cast_ref(&block.qs);
        for (line, quad) in quants.iter_mut().zip(bytes.as_chunks::<4>().0) {
            // Flipping the top bit of a signed byte adds 128.
            line.as_chunks_mut().0[lane] = quad.map(|q| q ^ 0x80);
        }
    }

    fn decode(lane: usize, _: &Nothing, d: &F16Rows, quants: &[Line; 8]) -> [f32; BLOCK] {
        core::array::from_fn(|k| {
            let w = quants[k / 4][4 * lane + k % 4];
            f32::from(w.wrapping_sub(128) as i8) * half(d[lane])
        })
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &[Line; 8]) -> [S::B; 8] {
        let [a, b, c, d, e, f, g, h] = quants;
        [s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d), s.bytes(e), s.bytes(f), s.bytes(g), s.bytes(h)]
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], d: &F16Rows) -> Factors<S::F> {
        whole(s, d, 1.0)
    }
}

/// Nibbles, 8 more than the elements.
#[allow(non_camel_case_types)]
pub(crate) struct Q4_0;

impl Layout for Q4_0 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = F16Rows;
    type Quants = Fours;
}

impl Format for Q4_0 {
    type Block = q4_0::Block;
    const BIAS: Bias = Bias::Eight;
    const BITS: u32 = 4;

    fn pack(block: &q4_0::Block, _: usize, lane: usize, d: &mut F16Rows, quants: &mut Fours) {
        d[lane] = block.d.bits();
        put_nibbles(quants, lane, &block.qs);
    }

    fn decode(lane: usize, _: &Nothing, d: &F16Rows, quants: &Fours) -> [f32; BLOCK] {
        get(quants, lane).map(|q| (f32::from(q) - 8.0) * half(d[lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], d: &F16Rows) -> Factors<S::F> {
        whole(s, d, 1.0)
    }
}

/// Nibbles with a scale and an offset.
#[allow(non_camel_case_types)]
pub(crate) struct Q4_1;

impl Layout for Q4_1 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = ScaleOffset;
    type Quants = Fours;
}

impl Format for Q4_1 {
    type Block = q4_1::Block;
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 4;
    const HAS_MIN: bool = true;

    fn pack(block: &q4_1::Block, _: usize, lane: usize, scales: &mut ScaleOffset, quants: &mut Fours) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        put_nibbles(quants, lane, &block.qs);
    }

    fn decode(lane: usize, _: &Nothing, s: &ScaleOffset, quants: &Fours) -> [f32; BLOCK] {
        get(quants, lane).map(|q| f32::from(q) * half(s.d[lane]) + half(s.m[lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Fours) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], scales: &ScaleOffset) -> Factors<S::F> {
        with_offset(s, scales)
    }
}

/// Return the fifth bits of a file's block, one a byte.
fn fifths(qh: [u8; 4]) -> [u8; BLOCK] {
    let bits = u32::from_le_bytes(qh);
    core::array::from_fn(|i| (bits >> i & 1) as u8)
}

/// Five bits, 16 more than the elements; the bytes of kernels are `8 (q - 16) + 128`.
#[allow(non_camel_case_types)]
pub(crate) struct Q5_0;

impl Layout for Q5_0 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = F16Rows;
    type Quants = FiveBits;
}

impl Format for Q5_0 {
    type Block = q5_0::Block;
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 5;
    const SHIFT: u32 = 3;

    fn pack(block: &q5_0::Block, _: usize, lane: usize, d: &mut F16Rows, quants: &mut FiveBits) {
        d[lane] = block.d.bits();
        put_nibbles(&mut quants.low, lane, &block.qs);
        put(&mut quants.high, lane, &fifths(block.qh));
    }

    fn decode(lane: usize, _: &Nothing, d: &F16Rows, quants: &FiveBits) -> [f32; BLOCK] {
        get_split(&quants.low, &quants.high, lane).map(|q| (f32::from(q) - 16.0) * half(d[lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &FiveBits) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high));
        }
        join(s, fours::<S, 3>(s, &quants.low), ones::<S, 7>(s, &quants.high))
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], d: &F16Rows) -> Factors<S::F> {
        whole(s, d, 1.0 / 8.0)
    }
}

/// Five bits with a scale and an offset.
#[allow(non_camel_case_types)]
pub(crate) struct Q5_1;

impl Layout for Q5_1 {
    const BLOCKS: usize = 1;
    type Head = Nothing;
    type Scales = ScaleOffset;
    type Quants = FiveBits;
}

impl Format for Q5_1 {
    type Block = q5_1::Block;
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 5;
    const HAS_MIN: bool = true;

    fn pack(block: &q5_1::Block, _: usize, lane: usize, scales: &mut ScaleOffset, quants: &mut FiveBits) {
        (scales.d[lane], scales.m[lane]) = (block.d.bits(), block.m.bits());
        put_nibbles(&mut quants.low, lane, &block.qs);
        put(&mut quants.high, lane, &fifths(block.qh));
    }

    fn decode(lane: usize, _: &Nothing, s: &ScaleOffset, quants: &FiveBits) -> [f32; BLOCK] {
        get_split(&quants.low, &quants.high, lane).map(|q| f32::from(q) * half(s.d[lane]) + half(s.m[lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &FiveBits) -> [S::B; 8] {
        join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high))
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, _: [S::F; 2], scales: &ScaleOffset) -> Factors<S::F> {
        with_offset(s, scales)
    }
}
