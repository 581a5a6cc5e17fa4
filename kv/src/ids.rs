//! Newtypes for tokens, positions and sequences.
//!
//! All three are small integers that calls take side by side; distinct types keep a caller from
//! mixing them up. Arithmetic on positions saturates or is checked, because positions come from
//! files and callers.

use bytemuck::{Pod, Zeroable};
use core::fmt;
use core::ops::{Add, Sub};

/// Index of a token in the vocabulary.
///
/// The crate never interprets a token; it copies the id from the batch to the ubatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Token(pub u32);

/// Position of a token in its sequence, counted from 0.
///
/// Valid positions start at [`Pos::ZERO`] and end before [`Pos::MAX`], so every valid position has
/// a successor. Addition and subtraction of a token count saturate at these two.
///
/// ```
/// use backstitch_kv::Pos;
///
/// assert_eq!(Pos(5) + 3, Pos(8));
/// assert_eq!(Pos(5) - 8, Pos::ZERO);
/// assert_eq!(Pos(5) - Pos(7), -2);
/// assert_eq!(Pos(5).checked_sub(8), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Pos(pub i32);

impl Pos {
    /// First position; as the start of a range it means "from the beginning".
    pub const ZERO: Pos = Pos(0);
    /// Bound after every valid position; as the end of a range it means "to the end".
    pub const MAX: Pos = Pos(i32::MAX);

    /// Return the position after this one; [`Pos::MAX`] has none and returns itself.
    pub(crate) fn next(self) -> Pos {
        self + 1
    }

    /// Return the position `n` tokens later, or `None` beyond [`Pos::MAX`].
    pub fn checked_add(self, n: u32) -> Option<Pos> {
        self.0.checked_add_unsigned(n).map(Pos)
    }

    /// Return the position `n` tokens earlier, or `None` before [`Pos::ZERO`].
    pub fn checked_sub(self, n: u32) -> Option<Pos> {
        self.0.checked_sub_unsigned(n).filter(|pos| *pos >= 0).map(Pos)
    }
}

/// Addition of a token count, saturating at [`Pos::MAX`].
impl Add<u32> for Pos {
    type Output = Pos;

    fn add(self, n: u32) -> Pos {
        Pos(self.0.saturating_add_unsigned(n))
    }
}

/// Subtraction of a token count, saturating at [`Pos::ZERO`].
impl Sub<u32> for Pos {
    type Output = Pos;

    fn sub(self, n: u32) -> Pos {
        Pos(self.0.saturating_sub_unsigned(n).max(0))
    }
}

/// Number of tokens from `other` to `self`; negative if `self` is the earlier one.
impl Sub for Pos {
    type Output = i64;

    fn sub(self, other: Pos) -> i64 {
        i64::from(self.0) - i64::from(other.0)
    }
}

/// Number of a sequence of a memory; valid ids are below the memory's `n_seq_max`.
///
/// Every sequence exists from the start and may be empty, so no call creates or destroys one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

impl SeqId {
    /// Return the id as an index into lists by sequence.
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
