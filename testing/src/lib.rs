//! What the tests of the other crates share: an allocator that counts and refuses, comparison of floats by their
//! bits, tables of cases that report every failure, and repeatable random data.
//!
//! A development dependency only: nothing here is meant for programs, and failed checks panic.
//!
//! Each module holds one tool. Start with [`cases::each`] for a table of inputs, [`bits::assert_bits`] for results
//! that must be the same to the last bit, [`random::Random`] for inputs, and [`allocator::Counting`] where a
//! promise is about memory.

pub mod allocator;
pub mod bits;
pub mod cases;
pub mod random;

pub use allocator::{Counting, Tally};
pub use bits::{assert_bits, first_difference};
pub use cases::each;
pub use random::Random;

/// Compiles the library's part of the repository's front page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
