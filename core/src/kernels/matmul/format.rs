//! What differs between the quantised types: how a block of a panel becomes bytes, and its sums become floats.
//!
//! Every type gives the kernels 32 columns as eight vectors of unsigned bytes. Where elements are signed, the bytes are
//! more than them by a constant ([`Bias`]); those of odd widths fill their byte from the top, so that they are a power
//! of two too large, which the scale takes back without rounding. Sets that sum products of few bits sooner get the bits alone,
//! and shift the sum.

use crate::block::{iq4_nl, mxfp4};
use crate::isa::{LANES, Simd};
use crate::packed::layout::{
    Affine, Fours, Halves, IQ4_NL, IQ4_XS, Layout, MXFP4, Ones, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1,
    Q5_K, Q6_K, Q8_0, ScaleMin, Strips, TQ2_0, Twos,
};

/// By how much the bytes are more than what they stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    /// By nothing; at most 127.
    None,
    /// By 8; at most 127.
    Eight,
    /// By 128.
    Signed,
}

impl Bias {
    /// The difference.
    #[cfg(any(
        all(target_arch = "x86_64", feature = "amx"),
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
    ))]
    #[inline(always)]
    pub(super) fn by(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Eight => 8,
            Self::Signed => 128,
        }
    }
}

/// What the integer sums of a block are multiplied by, for each row.
#[derive(Clone, Copy)]
pub(super) enum Factors<F> {
    /// `acc = fma(sum, scale * d_x, acc)`, then, with a minimum, `acc = fma(min, sum_x, acc)`.
    Whole { scale: F, min: Option<F> },
    /// The sums of the first and the last sixteen columns have whole factors, and `strips` of both together is exact:
    /// `acc = fma(sum_0 * strips[0] + sum_1 * strips[1], scale * d_x, acc)`.
    Halves { scale: F, strips: [F; 2], mins: Option<Mins<F>> },
}

/// Minima of the two halves: `acc = fma(less_0 * strips[0] + less_1 * strips[1], scale * d_x, acc)`, where `less` is -128 times
/// the sum of the activations.
#[derive(Clone, Copy)]
pub(super) struct Mins<F> {
    pub scale: F,
    pub strips: [F; 2],
}

/// A quantised type, as kernels see it.
pub(super) trait Format: Layout {
    /// Of the bytes.
    const BIAS: Bias;
    /// Bits of an element, if its byte holds nothing but them.
    const BITS: u32;
    /// How many times the bytes are twice the elements; they are the elements themselves where [`Simd::FEW_BITS`].
    const SHIFT: u32 = 0;
    /// Whether [`Format::factors`] are [`Factors::Halves`], else [`Factors::Whole`].
    const HALVES: bool = false;
    /// The elements of a block as eight vectors: vector g holds four columns from 4g of each row.
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8];
    /// The factors of a block with this head.
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F>;
}

/// Elements of four bits, shifted up by `TO`.
#[inline(always)]
fn fours<S: Simd, const TO: i32>(s: S, [a, b, c, d]: &Fours) -> [S::B; 8] {
    let (a, b, c, d) = (s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d));
    let (low, high, mask) = (-TO, 4 - TO, 15 << TO);
    [
        s.field(a, low, mask),
        s.field(b, low, mask),
        s.field(c, low, mask),
        s.field(d, low, mask),
        s.field(a, high, mask),
        s.field(b, high, mask),
        s.field(c, high, mask),
        s.field(d, high, mask),
    ]
}

/// Elements of two bits, shifted up by `TO`.
#[inline(always)]
fn twos<S: Simd, const TO: i32>(s: S, [a, b]: &Twos) -> [S::B; 8] {
    let (a, b, mask) = (s.bytes(a), s.bytes(b), 3 << TO);
    [
        s.field(a, -TO, mask),
        s.field(b, -TO, mask),
        s.field(a, 2 - TO, mask),
        s.field(b, 2 - TO, mask),
        s.field(a, 4 - TO, mask),
        s.field(b, 4 - TO, mask),
        s.field(a, 6 - TO, mask),
        s.field(b, 6 - TO, mask),
    ]
}

/// Elements of one bit, shifted up by `TO`.
#[inline(always)]
fn ones<S: Simd, const TO: i32>(s: S, [x]: &Ones) -> [S::B; 8] {
    let (x, mask) = (s.bytes(x), 1 << TO);
    [
        s.field(x, -TO, mask),
        s.field(x, 1 - TO, mask),
        s.field(x, 2 - TO, mask),
        s.field(x, 3 - TO, mask),
        s.field(x, 4 - TO, mask),
        s.field(x, 5 - TO, mask),
        s.field(x, 6 - TO, mask),
        s.field(x, 7 - TO, mask),
    ]
}

/// Elements put together from their lower and upper bits.
#[inline(always)]
fn join<S: Simd>(s: S, x: [S::B; 8], y: [S::B; 8]) -> [S::B; 8] {
    let [a, b, c, d, e, f, g, h] = x;
    [
        s.or(a, y[0]),
        s.or(b, y[1]),
        s.or(c, y[2]),
        s.or(d, y[3]),
        s.or(e, y[4]),
        s.or(f, y[5]),
        s.or(g, y[6]),
        s.or(h, y[7]),
    ]
}

/// The values of a table that nibbles choose from.
#[inline(always)]
fn look_up<S: Simd>(s: S, table: &[u8; 16], quants: &Fours) -> [S::B; 8] {
    let [a, b, c, d, e, f, g, h] = fours::<S, 0>(s, quants);
    [
        s.look_up(table, a),
        s.look_up(table, b),
        s.look_up(table, c),
        s.look_up(table, d),
        s.look_up(table, e),
        s.look_up(table, f),
        s.look_up(table, g),
        s.look_up(table, h),
    ]
}

/// A table of values plus 128.
const fn biased(values: &[i8; 16]) -> [u8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < 16 {
        table[i] = values[i] as u8 ^ 0x80;
        i += 1;
    }
    table
}

const UNEVEN: [u8; 16] = biased(&iq4_nl::VALUES);
const SMALL_FLOATS: [u8; 16] = biased(&mxfp4::DOUBLED);

/// A scale for the whole block, times `of`, a power of two.
#[inline(always)]
fn times<S: Simd>(s: S, d: &[u16; LANES], of: f32) -> Factors<S::F> {
    Factors::Whole { scale: s.mul(s.load_f16(d), s.splat(of)), min: None }
}

#[inline(always)]
fn affine<S: Simd>(s: S, head: &Affine, scales: &ScaleMin) -> Factors<S::F> {
    let scale = s.mul(s.load_f16(&head.d), s.to_float(s.widen_u8(&scales.scale)));
    let min = s.mul(s.load_f16(&head.m), s.to_float(s.widen_u8(&scales.min)));
    Factors::Whole { scale, min: Some(min) }
}

#[inline(always)]
fn strips<S: Simd>(s: S, d: &Halves, [first, second]: &Strips<i8>, of: f32) -> Factors<S::F> {
    let strips = [s.to_float(s.load_i8(first)), s.to_float(s.load_i8(second))];
    Factors::Halves { scale: s.mul(s.load_f16(d), s.splat(of)), strips, mins: None }
}

impl Format for Q8_0 {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        let [a, b, c, d, e, f, g, h] = quants;
        [s.bytes(a), s.bytes(b), s.bytes(c), s.bytes(d), s.bytes(e), s.bytes(f), s.bytes(g), s.bytes(h)]
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_f16(scales), min: None }
    }
}

impl Format for Q4_0 {
    const BIAS: Bias = Bias::Eight;
    const BITS: u32 = 4;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_f16(scales), min: None }
    }
}

impl Format for Q4_1 {
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 4;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_f16(&scales.d), min: Some(s.load_f16(&scales.m)) }
    }
}

/// Bytes are 8 (q - 16).
impl Format for Q5_0 {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 5;
    const SHIFT: u32 = 3;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high));
        }
        join(s, fours::<S, 3>(s, &quants.low), ones::<S, 7>(s, &quants.high))
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        times(s, scales, 1.0 / 8.0)
    }
}

impl Format for Q5_1 {
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 5;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high))
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_f16(&scales.d), min: Some(s.load_f16(&scales.m)) }
    }
}

impl Format for Q2_K {
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 2;
    const HALVES: bool = true;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        twos::<S, 0>(s, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        let (first, second) = (s.widen_u8(&scales[0]), s.widen_u8(&scales[1]));
        let low = s.isplat(15);
        let strips = [s.to_float(s.iand(first, low)), s.to_float(s.iand(second, low))];
        let mins = [s.to_float(s.ishr::<4>(first)), s.to_float(s.ishr::<4>(second))];
        let min = s.mul(s.load_f16(&head.m), s.splat(1.0 / 128.0));
        let mins = Some(Mins { scale: min, strips: mins });
        Factors::Halves { scale: s.load_f16(&head.d), strips, mins }
    }
}

/// Bytes are 32 (q - 4).
impl Format for Q3_K {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 3;
    const SHIFT: u32 = 5;
    const HALVES: bool = true;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, twos::<S, 0>(s, &quants.low), ones::<S, 2>(s, &quants.high));
        }
        join(s, twos::<S, 5>(s, &quants.low), ones::<S, 7>(s, &quants.high))
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        strips(s, head, scales, 1.0 / 32.0)
    }
}

impl Format for Q4_K {
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 4;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        fours::<S, 0>(s, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        affine(s, head, scales)
    }
}

impl Format for Q5_K {
    const BIAS: Bias = Bias::None;
    const BITS: u32 = 5;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        join(s, fours::<S, 0>(s, &quants.low), ones::<S, 4>(s, &quants.high))
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        affine(s, head, scales)
    }
}

/// Bytes are 4 (q - 32).
impl Format for Q6_K {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 6;
    const SHIFT: u32 = 2;
    const HALVES: bool = true;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        if S::FEW_BITS {
            return join(s, fours::<S, 0>(s, &quants.low), twos::<S, 4>(s, &quants.high));
        }
        join(s, fours::<S, 2>(s, &quants.low), twos::<S, 6>(s, &quants.high))
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        strips(s, head, scales, 1.0 / 4.0)
    }
}

impl Format for IQ4_NL {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        look_up(s, &UNEVEN, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_f16(scales), min: None }
    }
}

impl Format for IQ4_XS {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        look_up(s, &UNEVEN, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        let scale = s.mul(s.load_f16(head), s.to_float(s.load_i8(scales)));
        Factors::Whole { scale, min: None }
    }
}

impl Format for MXFP4 {
    const BIAS: Bias = Bias::Signed;
    const BITS: u32 = 8;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        look_up(s, &SMALL_FLOATS, quants)
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, _: &Self::Head, scales: &Self::Scales) -> Factors<S::F> {
        Factors::Whole { scale: s.load_bf16(scales), min: None }
    }
}

/// Bytes are 8 (q - 1).
impl Format for TQ2_0 {
    const BIAS: Bias = Bias::Eight;
    const BITS: u32 = 2;
    const SHIFT: u32 = 3;
    #[inline(always)]
    fn vectors<S: Simd>(s: S, quants: &Self::Quants) -> [S::B; 8] {
        if S::FEW_BITS { twos::<S, 0>(s, quants) } else { twos::<S, 3>(s, quants) }
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head, _: &Self::Scales) -> Factors<S::F> {
        times(s, head, 1.0 / 8.0)
    }
}
