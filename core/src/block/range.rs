//! The extremes of a block, with the reference's choice among equals.
//!
//! Encoders scale a block by its farthest element or by its range. Where two elements are equally
//! far, the first decides the sign of the scale, so the choice is part of the format.

/// Return the element with the largest magnitude, the first of those that share it; 0 if there is
/// none.
pub fn farthest(x: &[f32]) -> f32 {
    let mut far = 0.0_f32;
    for &x in x {
        if x.abs() > far.abs() {
            far = x;
        }
    }
    far
}

/// Return the smallest and the largest element; NaNs count as neither.
pub fn min_max(x: &[f32]) -> (f32, f32) {
    let (mut min, mut max) = (f32::MAX, f32::MIN);
    for &x in x {
        if x < min {
            min = x;
        }
        if x > max {
            max = x;
        }
    }
    (min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equally_far_elements_counts() {
        assert_eq!(farthest(&[1.0, -3.0, 3.0, 2.0]), -3.0);
        assert_eq!(farthest(&[0.0, f32::NAN, 1.0]), 1.0);
        assert_eq!(farthest(&[]), 0.0);
    }

    #[test]
    fn extremes_pass_over_what_is_no_number() {
        assert_eq!(min_max(&[2.0, f32::NAN, -1.0]), (-1.0, 2.0));
    }
}
