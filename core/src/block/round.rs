//! Rounding as the encoders do it, and the one division that they guard.

/// Return `1 / d`, or 0 for a block whose scale is 0.
pub fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Return the integer nearest to `x`, ties to even, for `|x| < 2^22`; beyond, something finite that
/// is the same everywhere.
///
/// Adding 1.5 * 2^23 leaves no room for a fraction, so the addition itself rounds; the integer is
/// then in the low bits. Encoders that search for scales round this way, and not like
/// [`libm::roundf`], which sends ties away from zero.
pub fn nearest(x: f32) -> i32 {
    let bits = (x + 12_582_912.0).to_bits();
    (bits & 0x007f_ffff) as i32 - 0x0040_0000
}

/// Return `x` without its fraction; a number that fits in no `i32` becomes the lowest one.
///
/// A block whose largest element is subnormal has a scale with an infinite inverse, and its quants
/// end up here. C leaves the outcome open; x86 makes it the lowest number, and so it is in the
/// files out there.
pub fn truncate(x: f32) -> i32 {
    if x.abs() < 2_147_483_648.0 { x as i32 } else { i32::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_sends_ties_to_even() {
        let cases =
            [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-2.51, -3), (4_194_303.0, 4_194_303)];
        for (x, wanted) in cases {
            assert_eq!(nearest(x), wanted, "{x}");
        }
    }

    #[test]
    fn nearest_stays_finite_on_what_is_no_number() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            assert!(nearest(x).abs() <= 0x0040_0000, "{x}");
        }
    }

    #[test]
    fn truncation_sends_what_does_not_fit_to_the_lowest_number() {
        assert_eq!([-1.9, 0.9, 2.5e9, f32::NEG_INFINITY].map(truncate), [-1, 0, i32::MIN, i32::MIN]);
        assert_eq!(truncate(f32::NAN), i32::MIN);
    }

    #[test]
    fn the_inverse_of_zero_is_zero() {
        assert_eq!((inverse(0.0), inverse(-0.0), inverse(-4.0)), (0.0, 0.0, -0.25));
    }
}
