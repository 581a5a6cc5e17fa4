//! Sets of characters.

use alloc::{string::String, vec::Vec};
use core::fmt::Write as _;

/// The first and the last code point that are no characters of their own.
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);

/// A set of characters, as ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CharSet(Vec<(u32, u32)>);

impl CharSet {
    /// Make the set of the characters in `ranges`, each with its first and last one. A range that
    /// ends before it begins has none.
    pub(super) fn new(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
            match merged.last_mut() {
                Some(end) if first <= end.1.saturating_add(1) => end.1 = end.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(without_surrogates(merged))
    }

    pub(super) fn single(c: char) -> Self {
        Self(Vec::from([(u32::from(c), u32::from(c))]))
    }

    /// Return the set of all characters that this one lacks.
    pub(super) fn negated(&self) -> Self {
        let mut ranges = Vec::new();
        let mut next = 0;
        for &(first, last) in &self.0 {
            if next < first {
                ranges.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= u32::from(char::MAX) {
            ranges.push((next, u32::from(char::MAX)));
        }
        Self(without_surrogates(ranges))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, c: u32) -> bool {
        let i = self.0.partition_point(|range| range.1 < c);
        self.0.get(i).is_some_and(|range| range.0 <= c)
    }

    /// Return the code points at which a character begins to be in the set, or not to be.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|&(first, last)| [first, last + 1])
    }

    /// Append the set as a class of a regular expression.
    pub(super) fn write_regex(&self, out: &mut String) {
        if self.is_empty() {
            return out.push_str("[^\\x{0}-\\x{10FFFF}]");
        }
        out.push('[');
        for &(first, last) in &self.0 {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{{{first:X}}}");
            if first < last {
                let _ = write!(out, "-\\x{{{last:X}}}");
            }
        }
        out.push(']');
    }
}

fn without_surrogates(ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let (low, high) = SURROGATES;
    let max = u32::from(char::MAX);
    let parts = ranges
        .into_iter()
        .flat_map(|(first, last)| [(first, last.min(low - 1)), (first.max(high + 1), last.min(max))]);
    parts.filter(|(first, last)| first <= last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn everything_is_all_characters() {
        let all = CharSet::new(Vec::new()).negated();
        assert_eq!(all.0, [(0, 0xD7FF), (0xE000, 0x10_FFFF)]);
        assert!(all.negated().is_empty());
    }

    proptest! {
        #[test]
        fn a_set_has_what_its_ranges_have(ranges in prop::collection::vec((0u32..40, 0u32..40), 0..8)) {
            let set = CharSet::new(ranges.clone());
            for c in 0..50 {
                let expected = ranges.iter().any(|&(first, last)| first <= c && c <= last);
                prop_assert_eq!(set.contains(c), expected);
                prop_assert_eq!(set.negated().contains(c), !expected);
            }
            prop_assert_eq!(set.negated().negated(), set);
        }
    }
}
