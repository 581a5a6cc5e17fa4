//! Comparison of floats by their bits. Equal logits are equal in all 32 bits, not approximately.

use std::fmt;

/// The first difference between two slices of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// One slice is longer.
    Length {
        /// Length of the slice under test.
        got: usize,
        /// Length of the expected slice.
        wanted: usize,
    },
    /// An element differs.
    Element {
        /// Index of the first element that differs.
        index: usize,
        /// The number of elements that differ.
        count: usize,
        /// The element under test.
        got: f32,
        /// The expected element.
        wanted: f32,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Difference::Length { got, wanted } => write!(f, "{got} values, {wanted} wanted"),
            Difference::Element { index, count, got, wanted } => {
                let (g, w) = (got.to_bits(), wanted.to_bits());
                write!(
                    f,
                    "at {index}: {got:e} (0x{g:08x}), {wanted:e} (0x{w:08x}) wanted; {count} differ in all"
                )
            }
        }
    }
}

/// Return the first difference of `got` from `wanted` in its bits, if there is one.
///
/// Zeros of different sign differ. Two NaNs are equal whatever their payload, which depends on the
/// instruction set.
pub fn first_difference(got: &[f32], wanted: &[f32]) -> Option<Difference> {
    if got.len() != wanted.len() {
        return Some(Difference::Length { got: got.len(), wanted: wanted.len() });
    }
    let mut differing = got.iter().zip(wanted).enumerate().filter(|(_, (g, w))| !same(**g, **w));
    let (index, (&got, &wanted)) = differing.next()?;
    Some(Difference::Element { index, count: 1 + differing.count(), got, wanted })
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Panic with `what` and the first difference unless `got` equals `wanted`, as [`first_difference`]
/// defines it.
#[track_caller]
pub fn assert_bits(what: impl fmt::Display, got: &[f32], wanted: &[f32]) {
    if let Some(difference) = first_difference(got, wanted) {
        panic!("{what}: {difference}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bits_are_no_difference() {
        let x = [0.0, -0.0, 1.5, f32::INFINITY, f32::from_bits(1)];
        assert_eq!(first_difference(&x, &x), None);
        assert_eq!(first_difference(&[], &[]), None);
        assert_eq!(first_difference(&[f32::NAN], &[-f32::NAN]), None);
    }

    #[test]
    fn the_first_of_all_differing_elements_is_named() {
        let difference = first_difference(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0000002, 3.0, 5.0]);
        let wanted = Difference::Element { index: 1, count: 2, got: 2.0, wanted: 2.0000002 };
        assert_eq!(difference, Some(wanted));
        let text = "at 1: 2e0 (0x40000000), 2.0000002e0 (0x40000001) wanted; 2 differ in all";
        assert_eq!(wanted.to_string(), text);
    }

    #[test]
    fn sign_of_zero_nan_against_number_and_length_differ() {
        for (got, wanted) in [(0.0, -0.0), (f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(first_difference(&[got], &[wanted]).is_some(), "{got} {wanted}");
        }
        let length = first_difference(&[1.0], &[1.0, 2.0]);
        assert_eq!(length, Some(Difference::Length { got: 1, wanted: 2 }));
    }

    #[test]
    #[should_panic(expected = "logits: at 0: 1e0")]
    fn assertion_names_what_was_compared() {
        assert_bits("logits", &[1.0], &[2.0]);
    }
}
