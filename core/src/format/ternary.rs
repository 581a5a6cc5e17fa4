//! TQ1_0, TQ2_0, Q1_0 and Q2_0: elements from -1 to 2 in two bits, with one scale for many columns.
//!
//! TQ1_0 is packed into the panels of TQ2_0, and Q1_0 into those of Q2_0: two bits an element
//! instead of 1.7 or 1, and the elements need no taking apart.

use super::Format;
use super::layout::{BLOCK, Layout, Nothing};
use super::planes::{Twos, get, put};
use super::scales::{Bias, F16Rows, Factors, half, scale};
use super::unpack::twos;
use crate::block::f16::Half;
use crate::block::{q1_0, q2_0, tq1_0, tq2_0};
use crate::isa::Simd;
use bytemuck::Pod;
use core::marker::PhantomData;

/// A file's block of 256 or fewer elements, `d * (q - 1)`.
pub(crate) trait FewValues: Pod {
    /// Blocks of 32 columns in it.
    const BLOCKS: usize;

    /// Return the scale.
    fn d(&self) -> Half;

    /// Return the quants of the 32 elements from 32j.
    fn quants(&self, j: usize) -> [u8; BLOCK];
}

impl FewValues for tq1_0::Block {
    const BLOCKS: usize = 8;

    fn d(&self) -> Half {
        self.d
    }

    fn quants(&self, j: usize) -> [u8; BLOCK] {
        self.quants(j)
    }
}

impl FewValues for tq2_0::Block {
    const BLOCKS: usize = 8;

    fn d(&self) -> Half {
        self.d
    }

    fn quants(&self, j: usize) -> [u8; BLOCK] {
        self.quants(j)
    }
}

impl FewValues for q1_0::Block {
    const BLOCKS: usize = 4;

    fn d(&self) -> Half {
        self.d
    }

    fn quants(&self, j: usize) -> [u8; BLOCK] {
        self.bits(j).map(|bit| 2 * bit)
    }
}

impl FewValues for q2_0::Block {
    const BLOCKS: usize = 2;

    fn d(&self) -> Half {
        self.d
    }

    fn quants(&self, j: usize) -> [u8; BLOCK] {
        self.quants(j)
    }
}

/// Two bits, 1 more than the elements, from a file's blocks `B`; the bytes of kernels are `8 (q -
/// 1) + 8`. `N` blocks of 32 columns share a scale.
pub(crate) struct Two<B, const N: usize>(PhantomData<B>);

#[allow(non_camel_case_types)]
pub(crate) type TQ1_0 = Two<tq1_0::Block, 8>;
#[allow(non_camel_case_types)]
pub(crate) type TQ2_0 = Two<tq2_0::Block, 8>;
#[allow(non_camel_case_types)]
pub(crate) type Q1_0 = Two<q1_0::Block, 2>;
#[allow(non_camel_case_types)]
pub(crate) type Q2_0 = Two<q2_0::Block, 2>;

impl<B, const N: usize> Layout for Two<B, N> {
    const BLOCKS: usize = N;
    type Head = F16Rows;
    type Scales = Nothing;
    type Quants = Twos;
}

impl<B: FewValues, const N: usize> Format for Two<B, N> {
    type Block = B;
    const FILE_BLOCKS: usize = B::BLOCKS;
    const BIAS: Bias = Bias::Eight;
    const BITS: u32 = 2;
    const SHIFT: u32 = 3;

    fn pack_head(block: &B, lane: usize, d: &mut F16Rows) {
        d[lane] = block.d().bits();
    }

    fn pack(block: &B, j: usize, lane: usize, _: &mut Nothing, quants: &mut Twos) {
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
    fn head<S: Simd>(s: S, d: &F16Rows) -> [S::F; 2] {
        [scale(s, d, 1.0 / 8.0), s.splat(0.0)]
    }

    #[inline(always)]
    fn factors<S: Simd>(_: S, [scale, _]: [S::F; 2], _: &Nothing) -> Factors<S::F> {
        Factors::Whole { scale, min: None }
    }
}
