//! The limits of a kernel set: multiplying and adding without memory, and reading without
//! computing.
//!
//! A benchmark times these to know how near a product comes to its processor. No operand of the
//! multiplications leaves the nearest cache, and the compiler may not foresee any of them, or it
//! would compute them once. Each function returns how many operations it did, where a
//! multiplication and an addition are two.

use crate::isa::{LANES, Simd};
use core::hint::black_box;

/// Multiply and add floats, fused.
#[inline(always)]
pub(crate) fn multiply_floats<S: Simd>(s: S, n_rounds: usize) -> u64 {
    if const { S::N_REGISTERS >= 32 } { floats::<S, 24>(s, n_rounds) } else { floats::<S, 6>(s, n_rounds) }
}

/// Keep `N` independent sums, so that additions do not wait for each other.
#[inline(always)]
fn floats<S: Simd, const N: usize>(s: S, n_rounds: usize) -> u64 {
    let factor = s.splat(black_box(0.5));
    let mut sums: [S::F; N] = [factor; N];
    for sum in &mut sums {
        // Numbers that the compiler does not know, or it might find out that one sum is enough.
        *sum = s.load(black_box(&[1.0; LANES]));
    }
    for _ in 0..n_rounds {
        for sum in &mut sums {
            *sum = s.fma(*sum, factor, factor);
        }
    }
    for sum in sums {
        black_box(s.sum(sum));
    }
    2 * (N * LANES * n_rounds) as u64
}

/// Read all of `x`; return the wrapping sum of its bits.
#[inline(always)]
pub(crate) fn read<S: Simd>(s: S, x: &[f32]) -> i32 {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let (groups, others) = vectors.as_chunks::<4>();
    let mut sums = [s.isplat(0); 4];
    for group in groups {
        for (sum, x) in sums.iter_mut().zip(group) {
            *sum = s.iadd(*sum, s.to_bits(s.load(x)));
        }
    }
    for x in others {
        sums[0] = s.iadd(sums[0], s.to_bits(s.load(x)));
    }
    let rest = rest.iter().fold(0i32, |sum, x| sum.wrapping_add(x.to_bits() as i32));
    sums.into_iter().fold(rest, |sum, x| sum.wrapping_add(s.isum(x)))
}

/// Products of bytes, one token after the other.
pub(crate) mod integer {
    use super::{LANES, Simd, black_box};

    /// Multiply and add bytes.
    #[inline(always)]
    pub(crate) fn multiply_bytes<S: Simd>(s: S, n_rounds: usize) -> u64 {
        if const { S::N_REGISTERS >= 32 } { bytes::<S, 16>(s, n_rounds) } else { bytes::<S, 4>(s, n_rounds) }
    }

    /// Multiply as products of many tokens do: a vector of weights meets four bytes of each of `N`
    /// tokens.
    #[inline(always)]
    fn bytes<S: Simd, const N: usize>(s: S, n_rounds: usize) -> u64 {
        let w = s.bytes(black_box(&[3; 4 * LANES]));
        let x: [i32; N] = core::array::from_fn(|i| 0x0102_0300 + i as i32);
        let mut sums = [s.isplat(0); N];
        for _ in 0..n_rounds {
            // In their cache, where the compiler must look for them again each time.
            let x = black_box(&x);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = s.dot_small(*sum, w, *x);
            }
        }
        for sum in sums {
            black_box(s.isum(sum));
        }
        2 * (N * 4 * LANES * n_rounds) as u64
    }
}

/// Products of bytes on the tiles of AMX.
#[cfg(all(target_arch = "x86_64", feature = "amx"))]
pub(crate) mod tiles {
    use crate::isa::amx;
    use crate::isa::avx512::Avx512;

    /// Multiply and add bytes.
    #[inline(always)]
    pub(crate) fn multiply_bytes(s: Avx512, n_rounds: usize) -> u64 {
        amx::multiply_in_tiles(n_rounds).unwrap_or_else(|| super::integer::multiply_bytes(s, n_rounds))
    }
}

/// Products of bytes, two tokens times two rows.
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod pairs {
    use crate::isa::neon::{Mixed, Neon};

    /// Multiply and add bytes.
    #[inline(always)]
    pub(crate) fn multiply_bytes(s: Neon<Mixed>, n_rounds: usize) -> u64 {
        s.multiply_in_registers(n_rounds)
    }
}

#[cfg(test)]
mod tests;
