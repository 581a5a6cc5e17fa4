//! Small numbers that must not be mixed up: tokens, positions, sequences.

use core::fmt;

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
        Pos(self.0.saturating_add(1))
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
