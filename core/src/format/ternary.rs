//! TQ2_0: elements -1, 0 and 1 in two bits, with one scale for 256 columns.

use super::Format;
use super::layout::{BLOCK, Layout, Nothing};
use super::planes::{Twos, get, put};
use super::scales::{Bias, F16Rows, Factors, half, whole};
use super::unpack::twos;
use crate::block::tq2_0;
use crate::isa::Simd;

/// Two bits, 1 more than the elements; the bytes of kernels are `8 (q - 1) + 8`.
#[allow(non_camel_case_types)]
pub(crate) struct TQ2_0;

impl Layout for TQ2_0 {
    const BLOCKS: usize = 8;
    type Head = F16Rows;
    type Scales = Nothing;
    type Quants = Twos;
}

impl Format for TQ2_0 {
    type Block = tq2_0::Block;
    const BIAS: Bias = Bias::Eight;
    const BITS: u32 = 2;
    const SHIFT: u32 = 3;

    fn pack_head(block: &tq2_0::Block, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d.bits();
    }

    fn pack(block: &tq2_0::Block, j: usize, lane: usize, _: &mut Nothing, quants: &mut Twos) {
        put(quants, lane, &block.quants(j));
    }

    fn decode(lane: usize, d: &F16Rows, _: &Nothing, quants: &Twos) -> [f32; BLOCK] {
        get(quants, lane).map(|q| (f32::from(q) - 1.0) * half(d[lane]))
    }

    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Twos) -> [S::B; 8] {
        if S::FEW_BITS { twos::<S, 0>(s, quants) } else { twos::<S, 3>(s, quants) }
    }

    #[inline(always)]
    fn factors<S: Simd>(s: S, d: &F16Rows, _: &Nothing) -> Factors<S::F> {
        whole(s, d, 1.0 / 8.0)
    }
}
