//! Tools that the tests of the other crates share: an allocator that counts and refuses, comparison
//! of floats by their bits, tables of cases that report every failure, and repeatable random data.
//!
//! This is a development dependency only: nothing here is meant for programs, and failed checks
//! panic.
//!
//! Each module has one tool. [`cases::each`] is for tables of inputs, [`bits::assert_bits`] for
//! results that must agree to the last bit, [`random::Random`] for inputs, and
//! [`allocator::Counting`] for promises about memory.

pub mod allocator;
pub mod bits;
pub mod cases;
pub mod random;

pub use allocator::{Counting, Tally};
pub use bits::{assert_bits, first_difference};
pub use cases::each;
pub use random::Random;

/// The library's section of the repository's front page, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
