//! WebAssembly's simd128: four registers imitate the sixteen lanes.
//!
//! A module has these instructions or has not, from the day it is compiled (`-C
//! target-feature=+simd128`), so there is nothing to detect. They lack a fused multiply-add;
//! [`fma`] makes one out of `f64` lanes, exact in every case.
//!
//! Bytes are multiplied as 16-bit words (`i32x4.dot_i16x8_s`), exactly. Half precision is widened
//! and rounded with integer arithmetic, since there are no instructions for it.

use super::simd::{LANES, Simd};
use bytemuck::must_cast;
use core::arch::wasm32::*;

/// Token of the simd128 set; a module that was compiled with it has the instructions.
#[derive(Clone, Copy, Debug)]
pub struct Simd128;

impl Simd128 {
    /// Return the token.
    #[inline(always)]
    pub(crate) fn token() -> Self {
        Self
    }
}

#[inline(always)]
fn each<T: Copy, R>(a: [T; 4], f: impl Fn(T) -> R) -> [R; 4] {
    [f(a[0]), f(a[1]), f(a[2]), f(a[3])]
}

#[inline(always)]
fn pair<T: Copy, U: Copy, R>(a: [T; 4], b: [U; 4], f: impl Fn(T, U) -> R) -> [R; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

/// Return all lanes folded by the tree of [`Simd::sum`], in lane 0.
#[inline(always)]
fn fold(x: [v128; 4], f: impl Fn(v128, v128) -> v128) -> v128 {
    let x = f(f(x[0], x[2]), f(x[1], x[3]));
    let x = f(x, i32x4_shuffle::<2, 3, 2, 3>(x, x));
    f(x, i32x4_shuffle::<1, 1, 1, 1>(x, x))
}

/// Return the upper two floats, as doubles.
#[inline(always)]
fn promote_high(x: v128) -> v128 {
    f64x2_promote_low_f32x4(i64x2_shuffle::<1, 1>(x, x))
}

/// Return `a * b + c` with one rounding.
///
/// The product of two floats is exact as a double, and so the sum is rounded once to 53 bits and
/// once to 24. That is as good as one rounding unless the first ends exactly between two floats.
/// The bits that will be cut off tell; between subnormal floats those places are others, so results
/// that are not larger than the smallest normal float are doubted too.
#[inline(always)]
fn fma(a: v128, b: v128, c: v128) -> v128 {
    let low = f64x2_mul(f64x2_promote_low_f32x4(a), f64x2_promote_low_f32x4(b));
    let high = f64x2_mul(promote_high(a), promote_high(b));
    let (c_low, c_high) = (f64x2_promote_low_f32x4(c), promote_high(c));
    let (sum_low, sum_high) = (f64x2_add(low, c_low), f64x2_add(high, c_high));
    let sum = demote(sum_low, sum_high);
    let cut = v128_and(i32x4_shuffle::<0, 2, 4, 6>(sum_low, sum_high), i32x4_splat(0x1fff_ffff));
    let between = i32x4_eq(cut, i32x4_splat(0x1000_0000));
    let small = f32x4_le(f32x4_abs(sum), f32x4_splat(f32::MIN_POSITIVE));
    if v128_any_true(v128_or(between, small)) {
        return demote(add_to_odd(low, c_low), add_to_odd(high, c_high));
    }
    sum
}

/// Return four doubles as floats.
#[inline(always)]
fn demote(low: v128, high: v128) -> v128 {
    i64x2_shuffle::<0, 2>(f32x4_demote_f64x2_zero(low), f32x4_demote_f64x2_zero(high))
}

/// Return `a + b`; where that is not exact, the one of the two nearest doubles whose last bit is
/// set.
///
/// Rounding it to fewer bits gives the same as rounding the exact sum (Boldo and Melquiond,
/// *Emulation of FMA and correctly rounded sums*, 2008).
#[inline(always)]
fn add_to_odd(a: v128, b: v128) -> v128 {
    let sum = f64x2_add(a, b);
    // The error of the sum, exactly (Knuth); NaN if the sum is infinite or NaN.
    let of_b = f64x2_sub(sum, a);
    let lacking = f64x2_add(f64x2_sub(a, f64x2_sub(sum, of_b)), f64x2_sub(b, of_b));
    let inexact = f64x2_gt(f64x2_abs(lacking), f64x2_splat(0.0));
    // Minus one where it was rounded away from zero: together with the last bit that is the odd
    // neighbour.
    let away = i64x2_lt(v128_xor(sum, lacking), i64x2_splat(0));
    v128_or(i64x2_add(sum, v128_and(away, inexact)), v128_and(inexact, i64x2_splat(1)))
}

/// Return four half-precision numbers, whose bits are the low halves of the lanes.
#[inline(always)]
fn from_f16(x: v128) -> v128 {
    let size = i32x4_shl(v128_and(x, i32x4_splat(0x7fff)), 13);
    // The exponent counts from another number; as a product, subnormal numbers become normal.
    let finite = f32x4_mul(size, f32x4_splat(f32::from_bits((127 + 112) << 23)));
    let infinite = v128_and(i32x4_ge(size, i32x4_splat(0x7c00 << 13)), i32x4_splat(0xff << 23));
    let sign = i32x4_shl(v128_and(x, i32x4_splat(0x8000)), 16);
    v128_or(v128_or(finite, infinite), sign)
}

/// Return four floats rounded to half precision, in the low halves of 32 bits.
#[inline(always)]
fn to_f16(x: v128) -> v128 {
    let size = v128_and(x, i32x4_splat(0x7fff_ffff));
    let sign = u32x4_shr(v128_xor(x, size), 16);
    let odd = v128_and(u32x4_shr(size, 13), i32x4_splat(1));
    let rebased = i32x4_add(size, i32x4_splat(0xfff - (112 << 23)));
    let normal = u32x4_shr(i32x4_add(rebased, odd), 13);
    // Where a half is subnormal, the last bit of 0.5 is worth as much as its own: the addition
    // rounds.
    let small = i32x4_sub(f32x4_add(size, f32x4_splat(0.5)), f32x4_splat(0.5));
    let half = v128_bitselect(small, normal, i32x4_lt(size, i32x4_splat(113 << 23)));
    let half = v128_bitselect(i32x4_splat(0x7c00), half, i32x4_ge(size, i32x4_splat((127 + 16) << 23)));
    let half = v128_bitselect(i32x4_splat(0x7e00), half, i32x4_gt(size, i32x4_splat(0xff << 23)));
    v128_or(half, sign)
}

/// Return four floats rounded to bfloat16, in the low halves of 32 bits.
#[inline(always)]
fn to_bf16(x: v128) -> v128 {
    let odd = v128_and(u32x4_shr(x, 16), i32x4_splat(1));
    let rounded = i32x4_add(x, i32x4_add(odd, i32x4_splat(0x7fff)));
    let quiet = v128_or(x, i32x4_splat(0x40_0000));
    u32x4_shr(v128_bitselect(quiet, rounded, f32x4_ne(x, x)), 16)
}

/// Return sixteen unsigned words as lanes.
#[inline(always)]
fn widen(x: &[u16; LANES]) -> [v128; 4] {
    let [low, high]: [v128; 2] = must_cast(*x);
    [
        u32x4_extend_low_u16x8(low),
        u32x4_extend_high_u16x8(low),
        u32x4_extend_low_u16x8(high),
        u32x4_extend_high_u16x8(high),
    ]
}

/// Return lanes of at most 16 bits as words.
#[inline(always)]
fn narrow(x: [v128; 4]) -> [u16; LANES] {
    must_cast([u16x8_narrow_i32x4(x[0], x[1]), u16x8_narrow_i32x4(x[2], x[3])])
}

/// Return `2^n` for n in -126..=127.
#[inline(always)]
fn pow2(n: [v128; 4]) -> [v128; 4] {
    each(n, |n| i32x4_shl(i32x4_add(n, i32x4_splat(127)), 23))
}

/// Return bit `4 * quad + i` in lane i of quad `quad`.
#[inline(always)]
fn bit(quad: u32) -> v128 {
    i32x4_shl(i32x4(1, 2, 4, 8), 4 * quad)
}

impl Simd for Simd128 {
    type F = [v128; 4];
    type I = [v128; 4];
    type B = [v128; 4];
    const N_REGISTERS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [f32x4_splat(x); 4]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        must_cast(*x)
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        *out = must_cast(x);
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::F {
        each(widen(x), from_f16)
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]) {
        *out = narrow(each(x, to_f16));
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        each(widen(x), |x| i32x4_shl(x, 16))
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]) {
        *out = narrow(each(x, to_bf16));
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        pair(a, b, |a, b| f32x4_add(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        pair(a, b, |a, b| f32x4_sub(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        pair(a, b, |a, b| f32x4_mul(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        pair(a, b, |a, b| f32x4_div(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        [fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1]), fma(a[2], b[2], c[2]), fma(a[3], b[3], c[3])]
    }
    // `f32x4_pmax(b, a)` is `b < a ? a : b`.
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        pair(b, a, |a, b| f32x4_pmax(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        pair(b, a, |a, b| f32x4_pmin(a, b))
    }
    #[inline(always)]
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F {
        let mask = i32x4_splat(mask.into());
        let hit = each([0, 1, 2, 3], |quad| i32x4_eq(v128_and(mask, bit(quad)), bit(quad)));
        core::array::from_fn(|quad| v128_bitselect(a[quad], b[quad], hit[quad]))
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> u16 {
        let [x, y, z, w] = pair(a, b, |a, b| u16::from(i32x4_bitmask(f32x4_lt(a, b))));
        x | y << 4 | z << 8 | w << 12
    }
    #[inline(always)]
    fn abs(self, x: Self::F) -> Self::F {
        each(x, |x| f32x4_abs(x))
    }
    #[inline(always)]
    fn swap_pairs(self, x: Self::F) -> Self::F {
        each(x, |x| i32x4_shuffle::<1, 0, 3, 2>(x, x))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        f32x4_extract_lane::<0>(fold(x, |a, b| f32x4_add(a, b)))
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        f32x4_extract_lane::<0>(fold(x, |a, b| f32x4_pmax(b, a)))
    }
    #[inline(always)]
    fn to_int(self, x: Self::F) -> Self::I {
        each(x, |x| i32x4_trunc_sat_f32x4(f32x4_nearest(x)))
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        each(x, |x| f32x4_convert_i32x4(x))
    }
    #[inline(always)]
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F {
        // In two steps, of which only the second can round: one factor cannot reach all exponents.
        let half = self.ishr::<1>(n);
        self.mul(self.mul(x, pow2(half)), pow2(self.isub(n, half)))
    }
    #[inline(always)]
    fn to_bits(self, x: Self::F) -> Self::I {
        x
    }
    #[inline(always)]
    fn with_bits(self, x: Self::I) -> Self::F {
        x
    }
    #[inline(always)]
    fn isplat(self, x: i32) -> Self::I {
        [i32x4_splat(x); 4]
    }
    #[inline(always)]
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I {
        pair(a, b, |a, b| i32x4_add(a, b))
    }
    #[inline(always)]
    fn isub(self, a: Self::I, b: Self::I) -> Self::I {
        pair(a, b, |a, b| i32x4_sub(a, b))
    }
    #[inline(always)]
    fn iand(self, a: Self::I, b: Self::I) -> Self::I {
        pair(a, b, |a, b| v128_and(a, b))
    }
    #[inline(always)]
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I {
        each(a, |a| i32x4_shr(a, N))
    }
    #[inline(always)]
    fn ishl(self, a: Self::I, n: u32) -> Self::I {
        each(a, |a| i32x4_shl(a, n))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::I {
        let x: v128 = must_cast(*x);
        let (low, high) = (i16x8_extend_low_i8x16(x), i16x8_extend_high_i8x16(x));
        [
            i32x4_extend_low_i16x8(low),
            i32x4_extend_high_i16x8(low),
            i32x4_extend_low_i16x8(high),
            i32x4_extend_high_i16x8(high),
        ]
    }
    #[inline(always)]
    fn store_i8(self, x: Self::I, out: &mut [i8; LANES]) {
        let words = [i16x8_narrow_i32x4(x[0], x[1]), i16x8_narrow_i32x4(x[2], x[3])];
        *out = must_cast(i8x16_narrow_i16x8(words[0], words[1]));
    }
    #[inline(always)]
    fn isum(self, x: Self::I) -> i32 {
        i32x4_extract_lane::<0>(fold(x, |a, b| i32x4_add(a, b)))
    }
    #[inline(always)]
    fn prefetch<T>(self, _: &T, _ahead: usize) {}
    #[inline(always)]
    fn bytes(self, x: &[u8; 4 * LANES]) -> Self::B {
        must_cast(*x)
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]) {
        *out = must_cast(x);
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        let by = shift.unsigned_abs();
        each(x, |x| {
            let x = if shift < 0 { i16x8_shl(x, by) } else { u16x8_shr(x, by) };
            v128_and(x, u8x16_splat(mask))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        pair(a, b, |a, b| v128_or(a, b))
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B {
        each(x, |x| u8x16_swizzle(must_cast(*table), x))
    }
    #[inline(always)]
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I {
        let x: v128 = must_cast(*x);
        let (low, high) = (u16x8_extend_low_u8x16(x), u16x8_extend_high_u8x16(x));
        [
            u32x4_extend_low_u16x8(low),
            u32x4_extend_high_u16x8(low),
            u32x4_extend_low_u16x8(high),
            u32x4_extend_high_u16x8(high),
        ]
    }
    /// Widen a lane's bytes 0 and 2, and 1 and 3, to words where they stand, so that the products
    /// of a lane stay in it. Any byte may be a weight.
    #[inline(always)]
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        let x = i32x4_splat(x);
        let (even, odd) = (i16x8_shr(i16x8_shl(x, 8), 8), i16x8_shr(x, 8));
        pair(acc, w, |acc, w| {
            let low = i32x4_dot_i16x8(v128_and(w, u16x8_splat(0xff)), even);
            let high = i32x4_dot_i16x8(u16x8_shr(w, 8), odd);
            i32x4_add(acc, i32x4_add(low, high))
        })
    }
    #[inline(always)]
    fn start_biased(self, correction: i32) -> Self::I {
        self.isplat(correction)
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        self.dot_small(acc, w, x)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn operations_are_those_of_the_scalar_set() {
        crate::isa::operations::check(super::Simd128::token());
    }
}
