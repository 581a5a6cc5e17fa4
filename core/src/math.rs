//! Elementary functions as polynomials: the same bits on every instruction set.
//!
//! Libraries of mathematical functions differ from system to system, and vectorised ones from
//! version to version. The functions here are polynomials over fused multiply-add with a fixed
//! order of operations; their errors are given in ulps against the exact value and tested over many
//! arguments.

use crate::isa::Simd;

/// Above this, `exp` is infinite.
const EXP_HIGH: f32 = 88.8;
/// Below this, `exp` rounds to zero.
const EXP_LOW: f32 = -104.0;

/// Return `e^x` in each lane, within 1 ulp over the normal range; 0 below -104, infinity above
/// 88.8, NaN for NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2` (Cody and Waite, *Software Manual for the Elementary
/// Functions*, 1980, chapter 6), then the Taylor series of `e^r` to the seventh power by Horner's
/// rule, whose remainder is below 2^-27, and the scaling by `2^n`, rounded once, subnormal results
/// and `n = 128` included.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(s.splat(EXP_LOW), s.min(s.splat(EXP_HIGH), x));
    let n = s.to_int(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let whole = s.to_float(n);
    // ln 2 in two parts: the first has its low bits clear, so that its product with n is exact.
    let r = s.fma(whole, s.splat(-0.693_145_75), x);
    let r = s.fma(whole, s.splat(-1.428_606_8e-6), r);
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.times_pow2(p, n)
}

/// Below this, `tanh` is a polynomial; above, it comes from `exp`.
const TANH_SMALL: f32 = 0.625;

/// Return `tanh x` in each lane, within 3 ulps; odd, exactly 1 for large x, NaN for NaN.
///
/// For small x a polynomial in `x^2` (minimax fit of `(tanh x / x - 1) / x^2` on `[0, 0.625^2]`,
/// relative error below 2e-8), otherwise `1 - 2 / (e^(2|x|) + 1)`, where nothing cancels.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let size = s.abs(x);
    let square = s.mul(x, x);
    let mut p = s.splat(-0.006_096_714);
    for c in [0.020_997_18, -0.053_850_908, 0.133_327_7, -0.333_333_28] {
        p = s.fma(p, square, s.splat(c));
    }
    let small = s.mul(x, s.fma(square, p, s.splat(1.0)));
    let e = exp(s, s.add(size, size));
    let large = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    let signed = s.select(s.lt(x, s.splat(0.0)), s.sub(s.splat(0.0), large), large);
    s.select(s.lt(size, s.splat(TANH_SMALL)), small, signed)
}

/// Return `x / (1 + e^-y)` in each lane: the form of all sigmoid-like gates.
#[inline(always)]
fn gated<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), y))))
}

/// Return `1 / (1 + e^-x)` in each lane, within 3 ulps; 0 below -88.8.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    gated(s, s.splat(1.0), x)
}

/// Return `x / (1 + e^-x)` in each lane, within 4 ulps; -0 below -88.8.
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    gated(s, x, x)
}

/// Return GELU by its tanh form, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, in each lane.
///
/// Computed as `x / (1 + e^-2u)`, which is the same function without the cancellation; the error is
/// that of `2u` (3 roundings) times `2u`, so within 16 ulps for x > -2 and 1e-7 absolute
/// everywhere.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let inner = s.fma(s.mul(x, x), s.splat(0.044_715), s.splat(1.0));
    // 2 sqrt(2 / pi)
    gated(s, x, s.mul(s.mul(x, s.splat(1.595_769)), inner))
}

/// Return `max(x, 0)^2` in each lane, rounded once.
#[inline(always)]
pub fn squared_relu<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(s.splat(0.0), x);
    s.mul(x, x)
}

/// Return `ln(1 + e^x)` in each lane, within 4 ulps above -87; never negative.
///
/// `max(x, 0) + ln(1 + y)` with `y = e^-|x|`, and `ln(1 + y) = 2 atanh(y / (2 + y))`, whose
/// argument is at most 1/3: a minimax fit of `(atanh z / z - 1) / z^2` in `z^2`, relative error of
/// the whole below 2e-8.
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let y = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let z = s.div(y, s.add(s.splat(2.0), y));
    let square = s.mul(z, z);
    let mut p = s.splat(0.134_257_5);
    for c in [0.141_183_1, 0.200_037_8, 0.333_333_2] {
        p = s.fma(p, square, s.splat(c));
    }
    let atanh = s.fma(s.mul(z, square), p, z);
    s.add(s.max(s.splat(0.0), x), s.add(atanh, atanh))
}

#[cfg(test)]
pub(crate) mod tests;
