//! Tools for tests and fuzzing, of this crate and of engines on top of it (feature `testing`).
//!
//! - [`Naive`] is the oracle: a memory so simple that its answers are taken as right.
//! - [`programs`] runs random programs of operations on a memory, an engine's own storage and the
//!   oracle, and compares them after each step; with the feature `proptest` there are strategies
//!   for such programs.
//! - [`FakeDisk`] is a disk in memory that fails, tears and forgets at any operation.
//! - [`forge`] makes state files with small defects, [`live`] the memories to save in them,
//!   [`edit`] the defects, and [`kept`] compares what is read back.
//!
//! # A property test of your own state
//!
//! Three examples of this crate are made to be copied: `property_test` checks an engine's storage
//! under random programs, `fuzz_target` does so with the bytes of a fuzzer, and `failing_disk`
//! saves a state while the disk fails at each of its operations in turn.

mod access;
pub mod edit;
pub mod forge;
pub mod kept;
pub mod live;
mod naive;
pub mod programs;

#[cfg(feature = "std")]
pub use crate::storage::disk::fake::{FakeDisk, Fault};
pub use naive::{Naive, NaiveCell, NaiveSequence, NaiveState, Rows};
