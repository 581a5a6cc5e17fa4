//! Elementary functions as polynomials: the same bits on every instruction set.

pub mod scalar;

use crate::isa::Simd;

/// Above this, `exp` is infinite.
const EXP_HIGH: f32 = 88.8;
/// Below this, `exp` rounds to zero.
const EXP_LOW: f32 = -104.0;

/// `e^x` in each lane, within 1 ulp over the normal range; 0 below -104, infinity above 88.8, NaN for NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2` (Cody and Waite, *Software Manual for the Elementary Functions*, 1980,
/// chapter 6), then the Taylor series of `e^r` to the seventh power by Horner's rule, whose remainder is below
/// 2^-27, and the scaling by `2^n` in two halves so that subnormal results and `n = 128` come out right.
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
    let half = s.ishr::<1>(n);
    s.mul(s.mul(p, s.pow2(half)), s.pow2(s.isub(n, half)))
}

#[cfg(test)]
mod tests {
    use crate::isa::KernelSet;

    #[test]
    fn exp_is_within_two_ulps_of_the_exact_value() {
        let mut worst = 0;
        for i in 0..200_000 {
            let x = -87.0 + 175.0 * i as f32 / 200_000.0;
            let mut got = [x];
            (KernelSet::scalar().exp_in_place)(&mut got);
            let exact = libm::exp(f64::from(x)) as f32;
            worst = worst.max((got[0].to_bits() as i64 - exact.to_bits() as i64).abs());
        }
        assert!(worst <= 2, "{worst} ulps");
    }

    #[test]
    fn exp_at_the_ends() {
        let mut x = [f32::NEG_INFINITY, -200.0, -0.0, 0.0, 100.0, f32::INFINITY, f32::NAN];
        (KernelSet::scalar().exp_in_place)(&mut x);
        assert_eq!(x[..6], [0.0, 0.0, 1.0, 1.0, f32::INFINITY, f32::INFINITY]);
        assert!(x[6].is_nan());
    }
}
