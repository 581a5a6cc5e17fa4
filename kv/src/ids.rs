//! The numbers that tokens, positions and sequences go by: one type each, so that none is taken for another.

/// A token: an index into a model's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// A position of a token in its sequence, counted from zero. Never negative in a cache; differences may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos(pub i32);

/// A sequence of a context: an index into its table of sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);
