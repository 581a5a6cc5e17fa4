//! AVX2 with FMA and F16C: two registers imitate the sixteen lanes.
//!
//! Bytes are multiplied by `vpmaddubsw`, unsigned times signed, whose sums of two products have
//! sixteen bits and saturate. Kernels therefore pass either few bits of weights, so that products
//! fit and several are summed before they are widened ([`Simd::FEW_BITS`]), or signed weights,
//! whose sign goes to the activation first. Eight registers of a pair each hold sums and operands;
//! the order of instructions is pinned in one place, because the compiler's own order needs more.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use super::simd::{LANES, Simd};
use core::arch::x86_64::*;

/// Token of the AVX2 set: its holder runs on a processor with AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// Return the token, for code that is itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn token() -> Self {
        Self(())
    }
}

/// Run intrinsics under the proof that a token gives.
macro_rules! have {
    ($body:expr) => {
        // SAFETY: an `Avx2` is made only in functions compiled for its features, which run only
        // after detection; loads and stores go through references to arrays of the full width and
        // ask for no alignment.
        unsafe { $body }
    };
}

/// Split sixty-four bytes or sixteen words in two halves that are references to arrays again.
#[inline(always)]
fn halves<T, const N: usize, const H: usize>(x: &[T; N]) -> (&[T; H], &[T; H]) {
    let (low, high) = x.split_at(H);
    match (low.try_into(), high.try_into()) {
        (Ok(low), Ok(high)) => (low, high),
        _ => unreachable!("H is half of N"),
    }
}

#[inline(always)]
fn halves_mut<T, const N: usize, const H: usize>(x: &mut [T; N]) -> (&mut [T; H], &mut [T; H]) {
    let (low, high) = x.split_at_mut(H);
    match (low.try_into(), high.try_into()) {
        (Ok(low), Ok(high)) => (low, high),
        _ => unreachable!("H is half of N"),
    }
}

impl Avx2 {
    #[inline(always)]
    fn fold(
        self,
        x: [__m256; 2],
        f: impl Fn(__m128, __m128) -> __m128,
        g: impl Fn(__m256, __m256) -> __m256,
    ) -> f32 {
        have!({
            let y = g(x[0], x[1]);
            let z = f(_mm256_castps256_ps128(y), _mm256_extractf128_ps::<1>(y));
            let z = f(z, _mm_movehl_ps(z, z));
            _mm_cvtss_f32(f(z, _mm_movehdup_ps(z)))
        })
    }

    /// Return eight masks of 32 bits from eight bits.
    #[inline(always)]
    fn spread(self, mask: u8) -> __m256 {
        have!({
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let hit = _mm256_and_si256(_mm256_set1_epi32(i32::from(mask)), bits);
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(hit, bits))
        })
    }

    /// Return `2^n` for n in -126..=127.
    #[inline(always)]
    fn pow2(self, n: [__m256i; 2]) -> [__m256; 2] {
        self.both(n, |n| {
            have!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)))))
        })
    }

    /// Return eight floats rounded to bfloat16, in the low halves of 32 bits.
    #[inline(always)]
    fn round_bf16(self, x: __m256) -> __m256i {
        have!({
            let bits = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            let bits = _mm256_blendv_epi8(_mm256_add_epi32(bits, round), quiet, nan);
            _mm256_srli_epi32::<16>(bits)
        })
    }

    #[inline(always)]
    fn both<T: Copy, R>(self, a: [T; 2], f: impl Fn(T) -> R) -> [R; 2] {
        [f(a[0]), f(a[1])]
    }

    #[inline(always)]
    fn pair<T: Copy, U: Copy, R>(self, a: [T; 2], b: [U; 2], f: impl Fn(T, U) -> R) -> [R; 2] {
        [f(a[0], b[0]), f(a[1], b[1])]
    }
}

/// Return `x`, computed in the order in which these calls stand.
///
/// The compiler would add in an order that takes more registers than there are.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(mut x: __m256i) -> __m256i {
    // SAFETY: an empty line of assembly, which executes nothing and leaves the register as it is.
    unsafe { core::arch::asm!("/* {0} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) }
    x
}

impl Avx2 {
    /// Add like [`Simd::dot_tokens`], with signed weights.
    #[inline(always)]
    fn dot_tokens_biased<const N: usize, const G: usize>(
        self,
        sums: &mut [[__m256i; 2]; G],
        w: &[[u8; 4 * LANES]; N],
        x: [&[i32; N]; G],
    ) {
        for j in 0..N {
            let w = self.bytes(&w[j]);
            for i in 0..G {
                let x = have!(_mm256_set1_epi32(x[i][j]));
                sums[i] = self.pair(sums[i], w, |sum, w| {
                    have!({
                        let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                        in_order(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
                    })
                });
            }
        }
    }
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];
    const N_REGISTERS: usize = 8;
    const FEW_BITS: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        have!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        let (low, high): (&[f32; 8], &[f32; 8]) = halves(x);
        self.both([low, high], |x| have!(_mm256_loadu_ps(x.as_ptr())))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        let (low, high): (&mut [f32; 8], &mut [f32; 8]) = halves_mut(out);
        have!(_mm256_storeu_ps(low.as_mut_ptr(), x[0]));
        have!(_mm256_storeu_ps(high.as_mut_ptr(), x[1]));
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::F {
        let (low, high): (&[u16; 8], &[u16; 8]) = halves(x);
        self.both([low, high], |x| have!(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]) {
        let (low, high): (&mut [u16; 8], &mut [u16; 8]) = halves_mut(out);
        have!(_mm_storeu_si128(low.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0])));
        have!(_mm_storeu_si128(high.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1])));
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        let (low, high): (&[u16; 8], &[u16; 8]) = halves(x);
        self.both([low, high], |x| {
            have!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(
                x.as_ptr().cast()
            )))))
        })
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]) {
        let (low, high) = (self.round_bf16(x[0]), self.round_bf16(x[1]));
        have!({
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), words)
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_add_ps(a, b)))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_sub_ps(a, b)))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_mul_ps(a, b)))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_div_ps(a, b)))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        have!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_max_ps(a, b)))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        self.pair(a, b, |a, b| have!(_mm256_min_ps(a, b)))
    }
    #[inline(always)]
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F {
        let mask = [self.spread(mask as u8), self.spread((mask >> 8) as u8)];
        have!([_mm256_blendv_ps(b[0], a[0], mask[0]), _mm256_blendv_ps(b[1], a[1], mask[1])])
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> u16 {
        let [low, high] =
            self.pair(a, b, |a, b| have!(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))));
        (low | high << 8) as u16
    }
    #[inline(always)]
    fn abs(self, x: Self::F) -> Self::F {
        self.both(x, |x| have!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x)))
    }
    #[inline(always)]
    fn swap_pairs(self, x: Self::F) -> Self::F {
        self.both(x, |x| have!(_mm256_permute_ps::<0b10_11_00_01>(x)))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        self.fold(x, |a, b| have!(_mm_add_ps(a, b)), |a, b| have!(_mm256_add_ps(a, b)))
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        self.fold(x, |a, b| have!(_mm_max_ps(a, b)), |a, b| have!(_mm256_max_ps(a, b)))
    }
    #[inline(always)]
    fn to_int(self, x: Self::F) -> Self::I {
        self.both(x, |x| have!(_mm256_cvtps_epi32(x)))
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        self.both(x, |x| have!(_mm256_cvtepi32_ps(x)))
    }
    #[inline(always)]
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F {
        // In two steps, of which only the second can round: one factor cannot reach all exponents.
        let half = self.ishr::<1>(n);
        self.mul(self.mul(x, self.pow2(half)), self.pow2(self.isub(n, half)))
    }
    #[inline(always)]
    fn to_bits(self, x: Self::F) -> Self::I {
        self.both(x, |x| have!(_mm256_castps_si256(x)))
    }
    #[inline(always)]
    fn with_bits(self, x: Self::I) -> Self::F {
        self.both(x, |x| have!(_mm256_castsi256_ps(x)))
    }
    #[inline(always)]
    fn isplat(self, x: i32) -> Self::I {
        have!([_mm256_set1_epi32(x); 2])
    }
    #[inline(always)]
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I {
        self.pair(a, b, |a, b| have!(_mm256_add_epi32(a, b)))
    }
    #[inline(always)]
    fn isub(self, a: Self::I, b: Self::I) -> Self::I {
        self.pair(a, b, |a, b| have!(_mm256_sub_epi32(a, b)))
    }
    #[inline(always)]
    fn iand(self, a: Self::I, b: Self::I) -> Self::I {
        self.pair(a, b, |a, b| have!(_mm256_and_si256(a, b)))
    }
    #[inline(always)]
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I {
        self.both(a, |a| have!(_mm256_sra_epi32(a, _mm_cvtsi32_si128(N as i32))))
    }
    #[inline(always)]
    fn ishl(self, a: Self::I, n: u32) -> Self::I {
        self.both(a, |a| have!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed()))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::I {
        let x = have!(_mm_loadu_si128(x.as_ptr().cast()));
        have!([_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x))])
    }
    #[inline(always)]
    fn store_i8(self, x: Self::I, out: &mut [i8; LANES]) {
        have!({
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(x[0], x[1]));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes)
        })
    }
    #[inline(always)]
    fn isum(self, x: Self::I) -> i32 {
        have!({
            let y = _mm256_add_epi32(x[0], x[1]);
            let z = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256::<1>(y));
            let z = _mm_add_epi32(z, _mm_shuffle_epi32::<0b01_00_11_10>(z));
            _mm_cvtsi128_si32(_mm_add_epi32(z, _mm_shuffle_epi32::<0b10_11_00_01>(z)))
        })
    }
    #[inline(always)]
    fn prefetch<T>(self, x: &T, ahead: usize) {
        let start = core::ptr::from_ref(x).cast::<i8>().wrapping_add(ahead);
        for line in 0..size_of::<T>().div_ceil(64) {
            have!(_mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64 * line)));
        }
    }
    #[inline(always)]
    fn prefetch_l2<T>(self, x: &T, ahead: usize) {
        let start = core::ptr::from_ref(x).cast::<i8>().wrapping_add(ahead);
        for line in 0..size_of::<T>().div_ceil(64) {
            have!(_mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(64 * line)));
        }
    }
    #[inline(always)]
    fn bytes(self, x: &[u8; 4 * LANES]) -> Self::B {
        let (low, high): (&[u8; 32], &[u8; 32]) = halves(x);
        self.both([low, high], |x| have!(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]) {
        let (low, high): (&mut [u8; 32], &mut [u8; 32]) = halves_mut(out);
        have!({
            _mm256_storeu_si256(low.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(high.as_mut_ptr().cast(), x[1]);
        });
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        self.both(x, |x| {
            have!({
                let by = _mm_cvtsi32_si128(shift.abs());
                let x = if shift < 0 { _mm256_sll_epi16(x, by) } else { _mm256_srl_epi16(x, by) };
                _mm256_and_si256(x, _mm256_set1_epi8(mask as i8))
            })
        })
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        self.pair(a, b, |a, b| have!(_mm256_or_si256(a, b)))
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B {
        let table = have!(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())));
        self.both(x, |x| have!(_mm256_shuffle_epi8(table, x)))
    }
    #[inline(always)]
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I {
        have!({
            let x = _mm_loadu_si128(x.as_ptr().cast());
            [_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x))]
        })
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        self.pair(acc, w, |acc, w| {
            have!({
                let pairs = _mm256_maddubs_epi16(w, _mm256_set1_epi32(x));
                _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            })
        })
    }
    /// Sum products in 16 bits as long as those cannot overflow: a pair is at most 2 * 127 times
    /// the largest byte.
    #[inline(always)]
    fn dot_few_bits<const N: usize, const BITS: u32>(
        self,
        acc: Self::I,
        w: &[Self::B; N],
        x: &[i32; N],
    ) -> Self::I {
        let together = const { i16::MAX as usize / (2 * 127 * ((1 << BITS) - 1)) };
        let mut sums = acc;
        for (half, sum) in sums.iter_mut().enumerate() {
            for (w, x) in w.chunks(together).zip(x.chunks(together)) {
                let mut pairs = have!(_mm256_setzero_si256());
                for (w, x) in w.iter().zip(x) {
                    pairs =
                        have!(_mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[half], _mm256_set1_epi32(*x))));
                }
                *sum = have!(_mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
            }
        }
        sums
    }
    #[inline(always)]
    fn dot_tokens<const N: usize, const G: usize, const BITS: u32>(
        self,
        sums: &mut [Self::I; G],
        w: &[[u8; 4 * LANES]; N],
        x: [&[i32; N]; G],
    ) {
        if BITS == 8 {
            return self.dot_tokens_biased(sums, w, x);
        }
        let together = const { i16::MAX as usize / (2 * 127 * ((1 << BITS) - 1)) };
        for from in (0..N).step_by(together) {
            let mut pairs = [[have!(_mm256_setzero_si256()); 2]; G];
            for j in from..N.min(from + together) {
                let w = self.bytes(&w[j]);
                for i in 0..G {
                    let x = have!(_mm256_set1_epi32(x[i][j]));
                    for half in 0..2 {
                        let product = have!(_mm256_maddubs_epi16(w[half], x));
                        pairs[i][half] = have!(in_order(_mm256_add_epi16(pairs[i][half], product)));
                    }
                }
            }
            for i in 0..G {
                sums[i] = self.pair(sums[i], pairs[i], |sum, pairs| {
                    have!(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
                });
            }
        }
    }
    #[inline(always)]
    fn start_biased(self, _correction: i32) -> Self::I {
        self.isplat(0)
    }
    /// Move the sign to the activation, so that a pair of products is at most 2 * 128 * 127 and
    /// cannot saturate.
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        self.pair(acc, w, |acc, w| {
            have!({
                let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                let signed = _mm256_sign_epi8(_mm256_set1_epi32(x), w);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), signed);
                _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            })
        })
    }
    #[inline(always)]
    fn sum_stripe(self, sums: &mut [u64; 8], stripe: &[u8; 64], key: &[u8; 64]) {
        let ((low, high), (low_key, high_key)) = (halves::<u8, 64, 32>(stripe), halves::<u8, 64, 32>(key));
        let (low_sums, high_sums) = halves_mut::<u64, 8, 4>(sums);
        for (sums, stripe, key) in [(low_sums, low, low_key), (high_sums, high, high_key)] {
            have!({
                let stripe = _mm256_loadu_si256(stripe.as_ptr().cast());
                let mixed = _mm256_xor_si256(stripe, _mm256_loadu_si256(key.as_ptr().cast()));
                let product = _mm256_mul_epu32(mixed, _mm256_srli_epi64::<32>(mixed));
                let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(stripe);
                let sum = _mm256_loadu_si256(sums.as_ptr().cast());
                let sum = _mm256_add_epi64(sum, _mm256_add_epi64(product, swapped));
                _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum);
            });
        }
    }
    #[inline(always)]
    fn stream(self, from: &[u8; 64], to: &mut [u8; 64]) {
        let (low, high) = halves::<u8, 64, 32>(from);
        let (to_low, to_high) = halves_mut::<u8, 64, 32>(to);
        for (from, to) in [(low, to_low), (high, to_high)] {
            let to: *mut __m256i = to.as_mut_ptr().cast();
            have!({
                let x = _mm256_loadu_si256(from.as_ptr().cast());
                if to.is_aligned() {
                    _mm256_stream_si256(to, x);
                } else {
                    _mm256_storeu_si256(to, x);
                }
            });
        }
    }
    #[inline(always)]
    fn settle(self) {
        have!(_mm_sfence());
    }
}

#[cfg(test)]
mod tests;
