//! The scalar set: arrays and loops. It is the specification that the other sets are held to.
//!
//! Every operation is written for one lane, in the plainest form that has the wanted rounding; the
//! compiler may vectorise it, but not reorder it. Only `fma` asks for an instruction.
//! Processors without a set of their own run this one, and every test of bits compares with it.

use super::simd::{LANES, Simd};
use crate::float;
use half::{bf16, f16};

/// Token of the scalar set; any processor can run it.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Scalar {
    /// Return the token.
    #[inline(always)]
    pub(crate) fn token() -> Self {
        Self
    }
}

#[inline(always)]
fn each<T: Copy>(f: impl Fn(usize) -> T) -> [T; LANES] {
    core::array::from_fn(f)
}

#[inline(always)]
fn fold<T: Copy>(mut x: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            x[i] = f(x[i], x[i + half]);
        }
        half /= 2;
    }
    x[0]
}

/// Return `a * b + c` with one rounding by the instruction for it, which older processors lack.
/// Without it every lane calls a library function, and the tests of exactness take 1.8 times as
/// long.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "fma")]
fn fma_by_instruction(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) -> [f32; LANES] {
    each(|i| float::fma(a[i], b[i], c[i]))
}

impl Simd for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];
    const N_REGISTERS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        *x
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        *out = x;
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::F {
        each(|i| float::from_f16(x[i]))
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]) {
        *out = each(|i| f16::from_f32_const(x[i]).to_bits());
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        each(|i| bf16::from_bits(x[i]).to_f32_const())
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]) {
        *out = each(|i| bf16::from_f32_const(x[i]).to_bits());
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        if std::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the instruction.
            #[allow(unsafe_code)]
            return unsafe { fma_by_instruction(&a, &b, &c) };
        }
        each(|i| float::fma(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if mask >> i & 1 == 1 { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> u16 {
        (0..LANES).fold(0, |mask, i| mask | u16::from(a[i] < b[i]) << i)
    }
    #[inline(always)]
    fn abs(self, x: Self::F) -> Self::F {
        each(|i| f32::from_bits(x[i].to_bits() & 0x7fff_ffff))
    }
    #[inline(always)]
    fn swap_pairs(self, x: Self::F) -> Self::F {
        each(|i| x[i ^ 1])
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        fold(x, |a, b| a + b)
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        fold(x, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn to_int(self, x: Self::F) -> Self::I {
        each(|i| float::round_even(x[i]) as i32)
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        each(|i| x[i] as f32)
    }
    #[inline(always)]
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F {
        // In two steps, of which only the second can round: one factor cannot reach all exponents.
        let pow2 = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
        each(|i| x[i] * pow2(n[i] >> 1) * pow2(n[i].wrapping_sub(n[i] >> 1)))
    }
    #[inline(always)]
    fn to_bits(self, x: Self::F) -> Self::I {
        each(|i| x[i].to_bits() as i32)
    }
    #[inline(always)]
    fn with_bits(self, x: Self::I) -> Self::F {
        each(|i| f32::from_bits(x[i] as u32))
    }
    #[inline(always)]
    fn isplat(self, x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I {
        each(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn isub(self, a: Self::I, b: Self::I) -> Self::I {
        each(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn iand(self, a: Self::I, b: Self::I) -> Self::I {
        each(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I {
        each(|i| a[i] >> N)
    }
    #[inline(always)]
    fn ishl(self, a: Self::I, n: u32) -> Self::I {
        each(|i| a[i] << n)
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::I {
        each(|i| i32::from(x[i]))
    }
    #[inline(always)]
    fn store_i8(self, x: Self::I, out: &mut [i8; LANES]) {
        *out = each(|i| x[i] as i8);
    }
    #[inline(always)]
    fn isum(self, x: Self::I) -> i32 {
        fold(x, i32::wrapping_add)
    }
    #[inline(always)]
    fn prefetch<T>(self, _: &T, _ahead: usize) {}
    #[inline(always)]
    fn bytes(self, x: &[u8; 4 * LANES]) -> Self::B {
        *x
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]) {
        *out = x;
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        x.map(|b| if shift < 0 { b << -shift } else { b >> shift } & mask)
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        core::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B {
        x.map(|b| table[usize::from(b & 15)])
    }
    #[inline(always)]
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I {
        x.map(i32::from)
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        let x = x.to_le_bytes().map(|b| i32::from(b as i8));
        each(|i| {
            let quad = &w[4 * i..4 * i + 4];
            acc[i].wrapping_add((0..4).map(|j| i32::from(quad[j]) * x[j]).sum())
        })
    }
    #[inline(always)]
    fn start_biased(self, _correction: i32) -> Self::I {
        [0; LANES]
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        let x = x.to_le_bytes().map(|b| i32::from(b as i8));
        each(|i| {
            let quad = &w[4 * i..4 * i + 4];
            acc[i].wrapping_add((0..4).map(|j| (i32::from(quad[j]) - 128) * x[j]).sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::tests::triples;

    #[test]
    fn the_instruction_rounds_as_the_library_function_does() {
        for (a, b, c) in triples(10_000) {
            let got = Scalar.fma(a, [b; LANES], c);
            for i in 0..LANES {
                let want = float::fma(a[i], b, c[i]);
                let both_nan = got[i].is_nan() && want.is_nan();
                assert!(both_nan || got[i].to_bits() == want.to_bits(), "{:e} * {b:e} + {:e}", a[i], c[i]);
            }
        }
    }
}
