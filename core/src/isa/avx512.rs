//! AVX-512 with VNNI: one register holds the sixteen lanes.
//!
//! `vpdpbusd` multiplies four unsigned bytes of weights by four signed bytes of activations and
//! adds the products to a 32-bit lane, without saturation. Signed weights are stored plus 128, and
//! a sum starts from the bias correction that takes this back. 32 registers let twelve tokens, or
//! two panels and six tokens, go side by side.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use super::simd::{LANES, Simd};
use core::arch::x86_64::*;

/// Token of the AVX-512 set: its holder runs on a processor with AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Run intrinsics under the proof that a token gives.
macro_rules! have {
    ($body:expr) => {
        // SAFETY: an `Avx512` is made only in functions compiled for its features, which run only
        // after detection; loads and stores go through references to arrays of the full width and
        // ask for no alignment.
        unsafe { $body }
    };
}

impl Avx512 {
    /// Return the token, for code that is itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    pub(crate) fn token() -> Self {
        Self(())
    }

    #[cfg(feature = "amx")]
    /// Store the bytes less `less` each.
    #[inline(always)]
    pub(crate) fn store_less(self, x: __m512i, less: u8, out: &mut [u8; 4 * LANES]) {
        have!(_mm512_storeu_si512(
            out.as_mut_ptr().cast(),
            _mm512_sub_epi8(x, _mm512_set1_epi8(less.cast_signed()))
        ))
    }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    const N_REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        have!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        have!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        have!(_mm512_storeu_ps(out.as_mut_ptr(), x))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::F {
        // Not the form that suppresses exceptions, which cannot read memory itself and takes one
        // more operation.
        have!(_mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]) {
        have!(_mm256_storeu_si256(
            out.as_mut_ptr().cast(),
            _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
        ))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        have!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
            x.as_ptr().cast()
        )))))
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]) {
        have!({
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let round = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let bits = _mm512_mask_blend_epi32(nan, _mm512_add_epi32(bits, round), quiet);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(bits)))
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        have!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F {
        have!(_mm512_mask_blend_ps(mask, b, a))
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> u16 {
        have!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn abs(self, x: Self::F) -> Self::F {
        have!(_mm512_abs_ps(x))
    }
    #[inline(always)]
    fn swap_pairs(self, x: Self::F) -> Self::F {
        have!(_mm512_permute_ps::<0b10_11_00_01>(x))
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        have!({
            let y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps::<1>(y));
            let z = _mm_add_ps(z, _mm_movehl_ps(z, z));
            _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)))
        })
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        have!({
            let y = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps::<1>(y));
            let z = _mm_max_ps(z, _mm_movehl_ps(z, z));
            _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)))
        })
    }
    #[inline(always)]
    fn to_int(self, x: Self::F) -> Self::I {
        have!(_mm512_cvtps_epi32(x))
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        have!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F {
        have!(_mm512_scalef_ps(x, _mm512_cvtepi32_ps(n)))
    }
    #[inline(always)]
    fn to_bits(self, x: Self::F) -> Self::I {
        have!(_mm512_castps_si512(x))
    }
    #[inline(always)]
    fn with_bits(self, x: Self::I) -> Self::F {
        have!(_mm512_castsi512_ps(x))
    }
    #[inline(always)]
    fn isplat(self, x: i32) -> Self::I {
        have!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I {
        have!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn isub(self, a: Self::I, b: Self::I) -> Self::I {
        have!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn iand(self, a: Self::I, b: Self::I) -> Self::I {
        have!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I {
        have!(_mm512_srai_epi32::<N>(a))
    }
    #[inline(always)]
    fn ishl(self, a: Self::I, n: u32) -> Self::I {
        have!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed())))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::I {
        have!(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_i8(self, x: Self::I, out: &mut [i8; LANES]) {
        have!(_mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)))
    }
    #[inline(always)]
    fn isum(self, x: Self::I) -> i32 {
        have!(_mm512_reduce_add_epi32(x))
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
        have!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]) {
        have!(_mm512_storeu_si512(out.as_mut_ptr().cast(), x));
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        have!({
            let by = _mm_cvtsi32_si128(shift.abs());
            let x = if shift < 0 { _mm512_sll_epi16(x, by) } else { _mm512_srl_epi16(x, by) };
            _mm512_and_si512(x, _mm512_set1_epi8(mask as i8))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        have!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B {
        have!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, x)
        })
    }
    #[inline(always)]
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I {
        have!(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        have!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)))
    }
    #[inline(always)]
    fn start_biased(self, correction: i32) -> Self::I {
        have!(_mm512_set1_epi32(correction))
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I {
        have!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)))
    }
    #[inline(always)]
    fn sum_stripe(self, sums: &mut [u64; 8], stripe: &[u8; 64], key: &[u8; 64]) {
        have!({
            let stripe = _mm512_loadu_si512(stripe.as_ptr().cast());
            let mixed = _mm512_xor_si512(stripe, _mm512_loadu_si512(key.as_ptr().cast()));
            let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
            let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(stripe);
            let sum = _mm512_loadu_si512(sums.as_ptr().cast());
            let sum = _mm512_add_epi64(sum, _mm512_add_epi64(product, swapped));
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), sum);
        });
    }
    #[inline(always)]
    fn stir_sums(self, sums: &mut [u64; 8], key: &[u8; 64], factor: u32) {
        have!({
            let sum = _mm512_loadu_si512(sums.as_ptr().cast());
            let mixed = _mm512_xor_si512(sum, _mm512_srli_epi64::<47>(sum));
            let mixed = _mm512_xor_si512(mixed, _mm512_loadu_si512(key.as_ptr().cast()));
            let stirred = _mm512_mullo_epi64(mixed, _mm512_set1_epi64(factor.into()));
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), stirred);
        });
    }
    #[inline(always)]
    fn stream(self, from: &[u8; 64], to: &mut [u8; 64]) {
        let to: *mut __m512i = to.as_mut_ptr().cast();
        have!({
            let x = _mm512_loadu_si512(from.as_ptr().cast());
            if to.is_aligned() {
                _mm512_stream_si512(to, x);
            } else {
                _mm512_storeu_si512(to, x);
            }
        });
    }
    #[inline(always)]
    fn settle(self) {
        have!(_mm_sfence());
    }
}

#[cfg(test)]
mod tests;
