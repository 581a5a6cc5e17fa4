//! The vector interface that kernels are written against.

/// Number of virtual lanes: what one AVX-512 register holds, and what every other set imitates.
pub const LANES: usize = 16;

/// Sixteen `f32` lanes, sixteen `i32` lanes and sixty-four bytes, with operations that give the
/// same bits on every instruction set.
///
/// Values of the implementing type are tokens: holding one proves that the processor has the
/// features, so the methods themselves are safe. Every floating-point operation rounds once, to
/// nearest even; comparisons with NaN are false. NaN payloads are the only thing that may differ
/// between sets.
///
/// The scalar set is the specification. Tests hold every operation of every other set to it, over
/// random and extreme operands.
pub trait Simd: Copy {
    /// Sixteen `f32` lanes.
    type F: Copy;
    /// Sixteen `i32` lanes.
    type I: Copy;
    /// Sixty-four bytes: four a lane.
    type B: Copy;

    /// The number of values of [`Simd::F`] that the registers hold: kernels choose the size of
    /// tiles by it.
    const N_REGISTERS: usize;
    /// True if [`Simd::dot_few_bits`] and [`Simd::dot_tokens`] take fewer instructions than
    /// [`Simd::dot_small`] and [`Simd::dot_biased`]. [`Simd::start_biased`] of such sets is 0.
    const FEW_BITS: bool = false;

    /// Return `x` in all lanes.
    fn splat(self, x: f32) -> Self::F;
    /// Load: lane i becomes `x[i]`.
    fn load(self, x: &[f32; LANES]) -> Self::F;
    /// Store: `out[i]` becomes lane i.
    fn store(self, x: Self::F, out: &mut [f32; LANES]);
    /// Load: lane i becomes the half-precision number with the bits `x[i]`; exact.
    fn load_f16(self, x: &[u16; LANES]) -> Self::F;
    /// Store: `out[i]` becomes the bits of lane i rounded to half precision, to nearest even.
    fn store_f16(self, x: Self::F, out: &mut [u16; LANES]);
    /// Load: lane i becomes the bfloat16 number with the bits `x[i]`; exact.
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F;
    /// Store: `out[i]` becomes the bits of lane i rounded to bfloat16, to nearest even; NaN stays
    /// NaN.
    fn store_bf16(self, x: Self::F, out: &mut [u16; LANES]);

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Lane i of `a` where bit i of `mask` is set, of `b` elsewhere.
    fn select(self, mask: u16, a: Self::F, b: Self::F) -> Self::F;
    /// Bit i is set where lane i of `a` is less than that of `b`.
    fn lt(self, a: Self::F, b: Self::F) -> u16;
    /// Return the absolute value of each lane.
    fn abs(self, x: Self::F) -> Self::F;
    /// Return lanes 2i and 2i + 1 exchanged.
    fn swap_pairs(self, x: Self::F) -> Self::F;
    /// Return the sum of all lanes, added as a fixed tree: lanes 8 apart, then 4, 2, 1.
    fn sum(self, x: Self::F) -> f32;
    /// Return the largest lane, by the same tree of [`Simd::max`].
    fn largest(self, x: Self::F) -> f32;

    /// Round each lane to the nearest integer, ties to even; unspecified outside the range of
    /// `i32`.
    fn to_int(self, x: Self::F) -> Self::I;
    /// Return each lane as `f32`, rounded to nearest even.
    fn to_float(self, x: Self::I) -> Self::F;
    /// `x * 2^n` for each lane, rounded once, where x is in 0.5..=2 and n in -252..=254;
    /// unspecified outside.
    fn times_pow2(self, x: Self::F, n: Self::I) -> Self::F;
    /// Return the bits of each lane, as integers.
    fn to_bits(self, x: Self::F) -> Self::I;
    /// Return the floats with the bits of each lane; the reverse of [`Simd::to_bits`].
    fn with_bits(self, x: Self::I) -> Self::F;
    /// Return `x` in all lanes.
    fn isplat(self, x: i32) -> Self::I;
    /// Wrapping `a + b`.
    fn iadd(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping `a - b`.
    fn isub(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise `a & b`.
    fn iand(self, a: Self::I, b: Self::I) -> Self::I;
    /// Arithmetic shift right by `N` bits.
    fn ishr<const N: u32>(self, a: Self::I) -> Self::I;
    /// Load: lane i becomes `x[i]`.
    fn load_i8(self, x: &[i8; LANES]) -> Self::I;
    /// Store: `out[i]` becomes the low byte of lane i, which must be in -128..=127.
    fn store_i8(self, x: Self::I, out: &mut [i8; LANES]);
    /// Return the sum of all lanes, wrapping.
    fn isum(self, x: Self::I) -> i32;

    /// Prefetch as many bytes as `x` has, `ahead` bytes behind it, to the nearest cache; changes
    /// nothing, and there need not be anything at that address.
    fn prefetch<T>(self, x: &T, ahead: usize);
    /// Prefetch to the second cache, for bytes that are needed only after others were read.
    #[inline(always)]
    fn prefetch_l2<T>(self, x: &T, ahead: usize) {
        self.prefetch(x, ahead);
    }
    /// Sixty-four bytes; lane i owns bytes 4i..4i+4.
    fn bytes(self, x: &[u8; 4 * LANES]) -> Self::B;
    /// Store sixty-four bytes.
    fn store_bytes(self, x: Self::B, out: &mut [u8; 4 * LANES]);
    /// Extract bits: each byte shifted right by `shift` bits (left if negative), less the bits that
    /// are not in `mask`.
    ///
    /// `mask` has at most 7 bits and must leave none that came from another byte.
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B;
    /// Bitwise `a | b`.
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// `table[x]` for each byte x of at most 15.
    fn look_up(self, table: &[u8; 16], x: Self::B) -> Self::B;
    /// Lane i is `x[i]`.
    fn widen_u8(self, x: &[u8; LANES]) -> Self::I;
    /// Return `acc + sum over j < 4 of w[4i + j] * x[j]` for each lane i; exact.
    ///
    /// `w` are unsigned bytes of at most 127; `x` holds four signed bytes of -127..=127, lowest
    /// first.
    fn dot_small(self, acc: Self::I, w: Self::B, x: i32) -> Self::I;
    /// Return the value to start [`Simd::dot_biased`] from.
    ///
    /// `correction` is the bias correction: -128 times the sum of all activations that will be met
    /// until the lanes are read. Sets whose instructions take signed weights ignore it.
    fn start_biased(self, correction: i32) -> Self::I;
    /// Add `(w - 128) * x`, like [`Simd::dot_small`] for signed weights stored plus 128; exact once
    /// all activations announced to [`Simd::start_biased`] are in.
    fn dot_biased(self, acc: Self::I, w: Self::B, x: i32) -> Self::I;

    /// Return `acc` plus the products of all `w[j]` with `x[j]`, each as [`Simd::dot_small`] adds
    /// them; exact. No byte of `w` has more than `BITS` bits.
    #[inline(always)]
    fn dot_few_bits<const N: usize, const BITS: u32>(
        self,
        acc: Self::I,
        w: &[Self::B; N],
        x: &[i32; N],
    ) -> Self::I {
        w.iter().zip(x).fold(acc, |acc, (w, x)| self.dot_small(acc, *w, *x))
    }

    /// Add the products of all `w[j]` with `x[i][j]` to `sums[i]`, one sum a token; exact.
    ///
    /// No byte of `w` may have more than `BITS` bits. With 8 bits, `w` are signed weights stored
    /// plus 128, and nothing has to be announced to [`Simd::start_biased`].
    #[inline(always)]
    fn dot_tokens<const N: usize, const G: usize, const BITS: u32>(
        self,
        sums: &mut [Self::I; G],
        w: &[[u8; 4 * LANES]; N],
        x: [&[i32; N]; G],
    ) {
        for (sum, x) in sums.iter_mut().zip(x) {
            if BITS < 8 {
                for (w, x) in w.iter().zip(x) {
                    *sum = self.dot_small(*sum, self.bytes(w), *x);
                }
                continue;
            }
            let announced =
                x.iter().flat_map(|x| x.to_le_bytes()).map(|x| i32::from(x.cast_signed())).sum::<i32>();
            let mut products = self.start_biased(-128 * announced);
            for (w, x) in w.iter().zip(x) {
                products = self.dot_biased(products, self.bytes(w), *x);
            }
            *sum = self.iadd(*sum, products);
        }
    }
    /// Return each lane shifted left by `n` bits, fewer than 32.
    fn ishl(self, a: Self::I, n: u32) -> Self::I;

    /// Add a stripe to the eight sums of [`crate::checksum`]: to each the product of the halves of
    /// its lane of `stripe ^ key`, and the neighbouring lane of `stripe`; modulo 2^64, lowest byte
    /// first.
    #[inline(always)]
    fn sum_stripe(self, sums: &mut [u64; 8], stripe: &[u8; 64], key: &[u8; 64]) {
        let (stripe, key) = (lanes64(stripe), lanes64(key));
        for i in 0..8 {
            let mixed = stripe[i] ^ key[i];
            let product = (mixed & 0xffff_ffff) * (mixed >> 32);
            sums[i] = sums[i].wrapping_add(product).wrapping_add(stripe[i ^ 1]);
        }
    }
    /// `sums[i] = (sums[i] ^ sums[i] >> 47 ^ key[i]) * factor`, modulo 2^64.
    #[inline(always)]
    fn stir_sums(self, sums: &mut [u64; 8], key: &[u8; 64], factor: u32) {
        let key = lanes64(key);
        for (sum, key) in sums.iter_mut().zip(key) {
            *sum = (*sum ^ *sum >> 47 ^ key).wrapping_mul(factor.into());
        }
    }
    /// Copy a line of memory, past the caches if `to` is one (begins at a multiple of 64 bytes):
    /// for bytes that are not read again soon. Other threads see the copy after [`Simd::settle`].
    #[inline(always)]
    fn stream(self, from: &[u8; 64], to: &mut [u8; 64]) {
        *to = *from;
    }
    /// Make streamed copies visible to other threads before anything that is written later.
    #[inline(always)]
    fn settle(self) {}
}

/// Return eight numbers from their bytes, lowest first.
#[inline(always)]
pub(crate) fn lanes64(bytes: &[u8; 64]) -> [u64; 8] {
    let (lanes, _) = bytes.as_chunks();
    core::array::from_fn(|i| u64::from_le_bytes(lanes[i]))
}
