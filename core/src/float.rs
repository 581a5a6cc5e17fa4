//! Operations on single floats that `core` lacks, or that are faster here; each rounds once, to
//! nearest even.

/// Return `a * b + c` with one rounding.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    return a.mul_add(b, c);
    #[cfg(any(not(feature = "std"), target_family = "wasm"))]
    return by_doubles(a, b, c);
}

/// Return [`fma`] where there is no instruction for it.
///
/// The product of two floats is exact as a double, and so the sum is rounded once to 53 bits and
/// once to 24. That is as good as one rounding unless the first ends exactly between two floats.
/// The 29 bits that will be cut off tell; between subnormal floats those places are others, so
/// results that are not larger than the smallest normal float are doubted too.
#[cfg(any(test, not(feature = "std"), target_family = "wasm"))]
#[inline(always)]
fn by_doubles(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let is_between = sum.to_bits() as u32 & 0x1fff_ffff == 0x1000_0000;
    let float = sum as f32;
    if is_between || f32::from_bits(float.to_bits() & 0x7fff_ffff) <= f32::MIN_POSITIVE {
        return add_to_odd(product, c) as f32;
    }
    float
}

/// Return `a + b`; where that is not exact, the one of the two nearest doubles whose last bit is
/// set.
///
/// Rounding it to fewer bits gives the same as rounding the exact sum (Boldo and Melquiond,
/// *Emulation of FMA and correctly rounded sums*, 2008).
#[cfg(any(test, not(feature = "std"), target_family = "wasm"))]
fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // The error of the sum, exactly (Knuth); NaN if the sum is infinite or NaN.
    let of_b = sum - a;
    let lacking = (a - (sum - of_b)) + (b - of_b);
    if lacking != 0.0 && !lacking.is_nan() {
        // Down by one where it was rounded away from zero: together with the last bit that is the
        // odd neighbour.
        let is_away = (sum.to_bits() ^ lacking.to_bits()) >> 63;
        return f64::from_bits((sum.to_bits() - is_away) | 1);
    }
    sum
}

/// Return the value of an IEEE half. NaNs become quiet ones with the same payload.
///
/// It has no branches, so that compilers vectorise it. Processors without an instruction for this
/// spend most of a product with F16 weights here.
#[inline(always)]
pub fn from_f16(bits: u16) -> f32 {
    // The exponent of a half is 112 less than that of the same float.
    const REBIAS: u32 = 112 << 23;
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Without the leading one, subnormal halves are what is left of a float of the next exponent.
    let one = REBIAS + (1 << 23);
    let subnormal = (f32::from_bits(magnitude + one) - f32::from_bits(one)).to_bits();
    let quiet = if magnitude > 0x1f << 23 { 1 << 22 } else { 0 };
    let rebiased = match magnitude >> 23 {
        0 => subnormal,
        0x1f => (magnitude + 2 * REBIAS) | quiet,
        _ => magnitude + REBIAS,
    };
    f32::from_bits(sign | rebiased)
}

/// Return the nearest integer, ties to even.
#[inline(always)]
pub fn round_even(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.round_ties_even();
    #[cfg(not(feature = "std"))]
    return libm::rintf(x);
}

/// Return the square root.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.sqrt();
    #[cfg(not(feature = "std"))]
    return libm::sqrtf(x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::tests::triples;

    #[test]
    fn every_half_becomes_the_float_that_the_library_has() {
        for bits in 0..=u16::MAX {
            let (got, want) = (from_f16(bits), half::f16::from_bits(bits).to_f32_const());
            assert_eq!(got.to_bits(), want.to_bits(), "{bits:#06x}: {got:e}, not {want:e}");
        }
    }

    #[test]
    fn one_rounding_by_doubles_is_one_rounding() {
        for (a, b, c) in triples(100_000) {
            for (a, c) in a.into_iter().zip(c) {
                let (got, want) = (by_doubles(a, b, c), fma(a, b, c));
                let both_nan = got.is_nan() && want.is_nan();
                assert!(
                    both_nan || got.to_bits() == want.to_bits(),
                    "{a:e} * {b:e} + {c:e}: {got:e}, not {want:e}"
                );
            }
        }
    }
}
