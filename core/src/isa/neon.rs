//! NEON of 64-bit ARM: four registers imitate the sixteen lanes.
//!
//! Three sets share all of this but the multiplication of bytes ([`Bytes`]). All such processors
//! have NEON, most since 2018 a product of four bytes for each lane (`sdot`), most since 2021 one
//! that takes unsigned weights (`usdot`). The latter two are written as assembly, because the
//! compiler's own functions for them are not stable.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use super::simd::{LANES, Simd};
use core::arch::aarch64::*;
use core::arch::asm;
use core::marker::PhantomData;

/// Token of the sets of NEON: its holder runs on a processor that has it, and the way `P` to
/// multiply bytes.
#[derive(Clone, Copy, Debug)]
pub struct Neon<P>(PhantomData<P>);

/// A way to multiply bytes.
pub trait Bytes: Copy {
    /// True if weights are unsigned, false if signed.
    const UNSIGNED: bool;
    /// Add the products of four neighbouring bytes to each lane.
    fn dot(s: Neon<Self>, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t;
}

/// Multiplication by the instructions that every processor has.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// Multiplication by `sdot`.
#[derive(Clone, Copy, Debug)]
pub struct Dot;

/// Multiplication by `usdot`.
#[derive(Clone, Copy, Debug)]
pub struct Mixed;

/// Run intrinsics of NEON.
macro_rules! have {
    ($body:expr) => {
        // SAFETY: this file is compiled only for processors that have NEON; loads and stores go
        // through references to arrays as long as what is read or written, and ask for no
        // alignment.
        unsafe { $body }
    };
}

impl Neon<Plain> {
    /// Return the token, for code that is itself compiled for these features.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) fn token() -> Self {
        Self(PhantomData)
    }
}

impl Neon<Dot> {
    /// Return the token, for code that is itself compiled for these features.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(crate) fn token() -> Self {
        Self(PhantomData)
    }
}

impl Neon<Mixed> {
    /// Return the token, for code that is itself compiled for these features.
    #[inline]
    #[target_feature(enable = "neon,dotprod,i8mm")]
    pub(crate) fn token() -> Self {
        Self(PhantomData)
    }
}

impl Bytes for Plain {
    const UNSIGNED: bool = false;
    /// Add sums of two products in sixteen bits, which they fit: they are at most 2 * 128 * 127.
    #[inline(always)]
    fn dot(_: Neon<Self>, acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        let w = have!(vreinterpretq_s8_u8(w));
        let high: int16x8_t;
        // The compiler's own function would move the upper half down first, because it knows that
        // all of `x` is the same. SAFETY: the instruction is one of NEON, which this file is
        // compiled for; it changes `high` and nothing else.
        unsafe {
            asm!(
                "smull2 {high:v}.8h, {w:v}.16b, {x:v}.16b",
                high = out(vreg) high,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        have!(vpadalq_s16(acc, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), high)))
    }
}

impl Bytes for Dot {
    const UNSIGNED: bool = false;
    #[inline(always)]
    fn dot(_: Neon<Self>, mut acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: a `Neon<Dot>` is made only in functions compiled for its features, which run only
        // after detection; the instruction changes `acc` and nothing else.
        unsafe {
            asm!(
                "sdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
                acc = inout(vreg) acc,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        acc
    }
}

impl Bytes for Mixed {
    const UNSIGNED: bool = true;
    #[inline(always)]
    fn dot(_: Neon<Self>, mut acc: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: a `Neon<Mixed>` is made only in functions compiled for its features, which run
        // only after detection; the instruction changes `acc` and nothing else.
        unsafe {
            asm!(
                "usdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
                acc = inout(vreg) acc,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        acc
    }
}

/// Split an array in four that are references to arrays again.
#[inline(always)]
fn quarters<T, const N: usize, const Q: usize>(x: &[T; N]) -> [&[T; Q]; 4] {
    match x.as_chunks().0 {
        [a, b, c, d] => [a, b, c, d],
        _ => unreachable!("Q is a quarter of N"),
    }
}

#[inline(always)]
fn quarters_mut<T, const N: usize, const Q: usize>(x: &mut [T; N]) -> [&mut [T; Q]; 4] {
    match x.as_chunks_mut().0 {
        [a, b, c, d] => [a, b, c, d],
        _ => unreachable!("Q is a quarter of N"),
    }
}

#[inline(always)]
fn each<T, R>([a, b, c, d]: [T; 4], f: impl Fn(T) -> R) -> [R; 4] {
    [f(a), f(b), f(c), f(d)]
}

#[inline(always)]
fn pair<T, U, R>([a, b, c, d]: [T; 4], with: [U; 4], f: impl Fn(T, U) -> R) -> [R; 4] {
    let [e, g, h, i] = with;
    [f(a, e), f(b, g), f(c, h), f(d, i)]
}

/// Return bit i in lane i.
#[inline(always)]
fn bits() -> [uint32x4_t; 4] {
    const BITS: [u32; LANES] = {
        let (mut bits, mut i) = ([0; LANES], 0);
        while i < LANES {
            bits[i] = 1 << i;
            i += 1;
        }
        bits
    };
    have!(each(quarters::<u32, LANES, 4>(&BITS), |bits| vld1q_u32(bits.as_ptr())))
}

/// Return `a > b ? a : b`.
#[inline(always)]
fn greater(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    have!(vbslq_f32(vcgtq_f32(a, b), a, b))
}

/// Return lanes 8 apart, then 4, 2, 1.
#[inline(always)]
fn fold(x: [float32x4_t; 4], f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> f32 {
    have!({
        let y = f(f(x[0], x[2]), f(x[1], x[3]));
        let y = f(y, vextq_f32::<2>(y, y));
        vgetq_lane_f32::<0>(f(y, vrev64q_f32(y)))
    })
}

/// Return `2^n` for n in -126..=127.
#[inline(always)]
fn pow2(n: int32x4_t) -> float32x4_t {
    have!(vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127)))))
}

/// Return floats rounded to bfloat16.
#[inline(always)]
fn round_bf16(x: float32x4_t) -> uint16x4_t {
    have!({
        let bits = vreinterpretq_u32_f32(x);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
        vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(x, x), rounded, quiet))
    })
}

/// Return four words of each of sixteen bytes.
#[inline(always)]
fn words(x: int8x16_t) -> [int32x4_t; 4] {
    have!({
        let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
        [
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ]
    })
}

/// Prefetch so many bytes from an address on; `$to` names the cache.
macro_rules! prefetch {
    ($to:literal, $start:expr, $bytes:expr) => {
        for line in 0..$bytes.div_ceil(64) {
            let line: usize = $start.wrapping_add(64 * line);
            // SAFETY: a hint; it reads nothing that the program could see, and any address may be
            // given.
            unsafe {
                asm!(concat!("prfm ", $to, ", [{}]"), in(reg) line, options(nomem, nostack, preserves_flags));
            }
        }
    };
}

impl<P: Bytes> Simd for Neon<P> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type B = [uint8x16_t; 4];
    const N_REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        have!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        have!(each(quarters::<f32, LANES, 4>(x), |x| vld1q_f32(x.as_ptr())))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        have!({
            pair(x, quarters_mut::<f32, LANES, 4>(out), |x, out| vst1q_f32(out.as_mut_ptr(), x));
        })
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::F {
        have!({
            each(quarters::<u16, LANES, 4>(x), |x| vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x.as_ptr()))))
        })
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]) {
        have!({
            pair(x, quarters_mut::<u16, LANES, 4>(out), |x, out| {
                vst1_u16(out.as_mut_ptr(), vreinterpret_u16_f16(vcvt_f16_f32(x)))
            });
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        have!({
            each(quarters::<u16, LANES, 4>(x), |x| {
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vld1_u16(x.as_ptr()))))
            })
        })
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]) {
        have!({
            pair(x, quarters_mut::<u16, LANES, 4>(out), |x, out| vst1_u16(out.as_mut_ptr(), round_bf16(x)));
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        have!(pair(a, b, |a, b| vaddq_f32(a, b)))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        have!(pair(a, b, |a, b| vsubq_f32(a, b)))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        have!(pair(a, b, |a, b| vmulq_f32(a, b)))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        have!(pair(a, b, |a, b| vdivq_f32(a, b)))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        have!(core::array::from_fn(|i| vfmaq_f32(c[i], a[i], b[i])))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        pair(a, b, greater)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        have!(pair(a, b, |a, b| vbslq_f32(vcltq_f32(a, b), a, b)))
    }
    #[inline(always)]
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F {
        have!({
            let (mask, bits) = (vdupq_n_u32(mask.into()), bits());
            core::array::from_fn(|i| vbslq_f32(vtstq_u32(mask, bits[i]), a[i], b[i]))
        })
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> u16 {
        have!({
            let [a, b, c, d] =
                pair(pair(a, b, |a, b| vcltq_f32(a, b)), bits(), |less, bit| vandq_u32(less, bit));
            vaddvq_u32(vorrq_u32(vorrq_u32(a, b), vorrq_u32(c, d))) as u16
        })
    }
    #[inline(always)]
    fn abs(self, x: Self::F) -> Self::F {
        have!(each(x, |x| vabsq_f32(x)))
    }
    #[inline(always)]
    fn swap_pairs(self, x: Self::F) -> Self::F {
        have!(each(x, |x| vrev64q_f32(x)))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        have!(fold(x, |a, b| vaddq_f32(a, b)))
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        fold(x, greater)
    }
    #[inline(always)]
    fn to_int(self, x: Self::F) -> Self::I {
        have!(each(x, |x| vcvtnq_s32_f32(x)))
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        have!(each(x, |x| vcvtq_f32_s32(x)))
    }
    #[inline(always)]
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F {
        // In two steps, of which only the second can round: one factor cannot reach all exponents.
        let half = self.ishr::<1>(n);
        self.mul(self.mul(x, each(half, pow2)), each(self.isub(n, half), pow2))
    }
    #[inline(always)]
    fn to_bits(self, x: Self::F) -> Self::I {
        have!(each(x, |x| vreinterpretq_s32_f32(x)))
    }
    #[inline(always)]
    fn with_bits(self, x: Self::I) -> Self::F {
        have!(each(x, |x| vreinterpretq_f32_s32(x)))
    }
    #[inline(always)]
    fn isplat(self, x: i32) -> Self::I {
        have!([vdupq_n_s32(x); 4])
    }
    #[inline(always)]
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I {
        have!(pair(a, b, |a, b| vaddq_s32(a, b)))
    }
    #[inline(always)]
    fn isub(self, a: Self::I, b: Self::I) -> Self::I {
        have!(pair(a, b, |a, b| vsubq_s32(a, b)))
    }
    #[inline(always)]
    fn iand(self, a: Self::I, b: Self::I) -> Self::I {
        have!(pair(a, b, |a, b| vandq_s32(a, b)))
    }
    #[inline(always)]
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I {
        have!(each(a, |a| vshlq_s32(a, vdupq_n_s32(-N.cast_signed()))))
    }
    #[inline(always)]
    fn ishl(self, a: Self::I, n: u32) -> Self::I {
        have!(each(a, |a| vshlq_s32(a, vdupq_n_s32(n.cast_signed()))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::I {
        have!(words(vld1q_s8(x.as_ptr())))
    }
    #[inline(always)]
    fn store_i8(self, [a, b, c, d]: Self::I, out: &mut [i8; LANES]) {
        have!({
            let (low, high) = (vmovn_high_s32(vmovn_s32(a), b), vmovn_high_s32(vmovn_s32(c), d));
            vst1q_s8(out.as_mut_ptr(), vmovn_high_s16(vmovn_s16(low), high));
        })
    }
    #[inline(always)]
    fn isum(self, [a, b, c, d]: Self::I) -> i32 {
        have!(vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d))))
    }
    #[inline(always)]
    fn prefetch<T>(self, x: &T, ahead: usize) {
        prefetch!("pldl1keep", core::ptr::from_ref(x).addr().wrapping_add(ahead), size_of::<T>());
    }
    #[inline(always)]
    fn prefetch_l2<T>(self, x: &T, ahead: usize) {
        prefetch!("pldl2keep", core::ptr::from_ref(x).addr().wrapping_add(ahead), size_of::<T>());
    }
    #[inline(always)]
    fn bytes(self, x: &[u8; 4 * LANES]) -> Self::B {
        have!(each(quarters::<u8, { 4 * LANES }, 16>(x), |x| vld1q_u8(x.as_ptr())))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]) {
        have!({
            pair(x, quarters_mut::<u8, { 4 * LANES }, 16>(out), |x, out| vst1q_u8(out.as_mut_ptr(), x));
        })
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        have!({
            // Negative shifts go to the right; constants become shifts with an immediate.
            each(x, |x| vandq_u8(vshlq_u8(x, vdupq_n_s8(-shift as i8)), vdupq_n_u8(mask)))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        have!(pair(a, b, |a, b| vorrq_u8(a, b)))
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B {
        have!({
            let table = vld1q_u8(table.as_ptr());
            each(x, |x| vqtbl1q_u8(table, x))
        })
    }
    #[inline(always)]
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I {
        have!({
            let x = vld1q_u8(x.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
            let words = [
                vmovl_u16(vget_low_u16(low)),
                vmovl_high_u16(low),
                vmovl_u16(vget_low_u16(high)),
                vmovl_high_u16(high),
            ];
            each(words, |x| vreinterpretq_s32_u32(x))
        })
    }
    // No closures from here on: they are not compiled for the features that the assembly needs.
    #[inline(always)]
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        have!({
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
            [
                P::dot(self, acc[0], w[0], x),
                P::dot(self, acc[1], w[1], x),
                P::dot(self, acc[2], w[2], x),
                P::dot(self, acc[3], w[3], x),
            ]
        })
    }
    #[inline(always)]
    fn start_biased(self, correction: i32) -> Self::I {
        self.isplat(if P::UNSIGNED { correction } else { 0 })
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        have!({
            let w = if P::UNSIGNED { w } else { each(w, |w| veorq_u8(w, vdupq_n_u8(128))) };
            self.dot_small(acc, w, x)
        })
    }
    #[inline(always)]
    fn sum_stripe(self, sums: &mut [u64; 8], stripe: &[u8; 64], key: &[u8; 64]) {
        have!({
            let (stripe, key) = (self.bytes(stripe), self.bytes(key));
            let mixed = pair(stripe, key, |stripe, key| vreinterpretq_u32_u8(veorq_u8(stripe, key)));
            let quarters = quarters_mut::<u64, 8, 2>(sums);
            for (i, sums) in quarters.into_iter().enumerate() {
                let (mixed, stripe) = (vreinterpretq_u64_u32(mixed[i]), vreinterpretq_u64_u8(stripe[i]));
                let sum = vaddq_u64(vld1q_u64(sums.as_ptr()), vextq_u64::<1>(stripe, stripe));
                let sum = vmlal_u32(sum, vmovn_u64(mixed), vshrn_n_u64::<32>(mixed));
                vst1q_u64(sums.as_mut_ptr(), sum);
            }
        })
    }
}

#[cfg(test)]
mod tests;
