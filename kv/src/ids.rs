//! Small numbers that must not be mixed up: tokens, positions, sequences.

use core::fmt;
use core::ops::{Add, Sub};

/// An entry of the vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Where a token stands in its sequence. Valid positions start at [`Pos::ZERO`] and end before [`Pos::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos(pub i32);

impl Pos {
    /// The first position; as the start of a range: from the beginning.
    pub const ZERO: Pos = Pos(0);
    /// After every position; as the end of a range: to the end.
    pub const MAX: Pos = Pos(i32::MAX);

    /// The position after this one; after [`Pos::MAX`] there is none.
    pub(crate) fn next(self) -> Pos {
        self + 1
    }

    /// The position `n` tokens later, if there is one up to [`Pos::MAX`].
    pub fn checked_add(self, n: u32) -> Option<Pos> {
        self.0.checked_add_unsigned(n).map(Pos)
    }

    /// The position `n` tokens earlier, if there is one from [`Pos::ZERO`] on.
    pub fn checked_sub(self, n: u32) -> Option<Pos> {
        self.0.checked_sub_unsigned(n).filter(|pos| *pos >= 0).map(Pos)
    }
}

/// The position so many tokens later; [`Pos::MAX`] where there is none.
impl Add<u32> for Pos {
    type Output = Pos;

    fn add(self, n: u32) -> Pos {
        Pos(self.0.saturating_add_unsigned(n))
    }
}

/// The position so many tokens earlier; [`Pos::ZERO`] where there is none.
impl Sub<u32> for Pos {
    type Output = Pos;

    fn sub(self, n: u32) -> Pos {
        Pos(self.0.saturating_sub_unsigned(n).max(0))
    }
}

/// The tokens from the other position to this one; negative where this one is the earlier.
impl Sub for Pos {
    type Output = i64;

    fn sub(self, other: Pos) -> i64 {
        i64::from(self.0) - i64::from(other.0)
    }
}

/// A sequence of a memory; valid ids are below the memory's `n_seq_max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

impl SeqId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_never_overflow() {
        assert_eq!((Pos(5) + 3, Pos(5) - 3, Pos(5) - Pos(7)), (Pos(8), Pos(2), -2));
        assert_eq!((Pos(5) + u32::MAX, Pos(5) - u32::MAX), (Pos::MAX, Pos::ZERO));
        assert_eq!(Pos::MAX - Pos(i32::MIN), (1 << 32) - 1);
        assert_eq!((Pos(5).checked_add(3), Pos(5).checked_sub(5)), (Some(Pos(8)), Some(Pos::ZERO)));
        assert_eq!((Pos::MAX.checked_add(1), Pos(5).checked_sub(6)), (None, None));
        assert_eq!((Pos(5).checked_add(u32::MAX), Pos(5).checked_sub(u32::MAX)), (None, None));
    }
}
