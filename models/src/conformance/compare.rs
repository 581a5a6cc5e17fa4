//! The distance between rows of numbers.

/// Differences accumulated over the rows of a case.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Distance {
    /// The largest absolute difference; infinite if one side is not a finite number.
    pub max: f32,
    /// The sum of the squared differences.
    squares: f64,
    /// The number of differences.
    n: usize,
}

impl Distance {
    /// Add the differences of one row. Rows of different lengths are infinitely far apart.
    pub fn add(&mut self, ours: &[f32], expected: &[f32]) {
        if ours.len() != expected.len() {
            self.max = f32::INFINITY;
        }
        for (a, b) in ours.iter().zip(expected) {
            let difference = (a - b).abs();
            let difference = if difference.is_nan() { f32::INFINITY } else { difference };
            self.max = self.max.max(difference);
            self.squares += f64::from(difference) * f64::from(difference);
            self.n += 1;
        }
    }

    /// Return the root mean square of the differences; 0 without any.
    pub fn rms(&self) -> f64 {
        if self.n == 0 { 0.0 } else { libm::sqrt(self.squares / self.n as f64) }
    }
}

/// Return the index of the largest number, the first among equals, and its lead over the second
/// largest.
pub fn best(row: &[f32]) -> Option<(u32, f32)> {
    let (mut best, mut second) = ((0, *row.first()?), f32::NEG_INFINITY);
    for (&x, i) in row.iter().zip(0u32..).skip(1) {
        if x > best.1 {
            second = best.1;
            best = (i, x);
        } else if x > second {
            second = x;
        }
    }
    Some((best.0, best.1 - second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_the_largest_and_the_mean_square() {
        let mut distance = Distance::default();
        distance.add(&[1.0, 2.0], &[1.0, 5.0]);
        distance.add(&[0.0, 0.0], &[0.0, 4.0]);
        assert_eq!((distance.max, distance.rms()), (4.0, 2.5));
    }

    #[test]
    fn what_cannot_be_compared_is_infinitely_far() {
        for (ours, expected) in
            [(&[f32::NAN][..], &[1.0][..]), (&[1.0], &[f32::NAN]), (&[1.0], &[1.0, 1.0]), (&[], &[1.0])]
        {
            let mut distance = Distance::default();
            distance.add(ours, expected);
            assert_eq!(distance.max, f32::INFINITY, "{ours:?} {expected:?}");
        }
    }

    #[test]
    fn best_is_the_first_of_the_largest_with_its_lead() {
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[3.0]), Some((0, f32::INFINITY)));
        assert_eq!(best(&[1.0, 4.0, 4.0]), Some((1, 0.0)));
        assert_eq!(best(&[5.0, 1.0, 3.0]), Some((0, 2.0)));
    }
}
