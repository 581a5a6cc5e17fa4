//! Single-number operations that `core` lacks; each rounds once, to nearest even.

/// `a * b + c` with one rounding.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "std")]
    return a.mul_add(b, c);
    #[cfg(not(feature = "std"))]
    return libm::fmaf(a, b, c);
}

/// The nearest integer, ties to even.
#[inline(always)]
pub fn round_even(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.round_ties_even();
    #[cfg(not(feature = "std"))]
    return libm::rintf(x);
}

/// The square root.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.sqrt();
    #[cfg(not(feature = "std"))]
    return libm::sqrtf(x);
}
