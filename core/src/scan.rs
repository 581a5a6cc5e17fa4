//! Recurrent layers: a state is read, tokens step it in order, the new state is written.
//!
//! What is computed, on bits: each state number goes through the same operations in the order of the tokens, so where a
//! run of tokens is cut, how many threads share the heads, and which kernel set runs them makes no difference.

mod conv;
mod delta;
mod heads;
mod selective;
mod ssd;
mod wkv6;
mod wkv7;

pub use conv::Conv;
pub use delta::{Delta, DeltaInputs, Sharing};
pub use selective::{Selective, SelectiveInputs};
pub use ssd::Ssd;
pub use wkv6::{Wkv6, Wkv6Inputs};
pub use wkv7::{Wkv7, Wkv7Inputs};

/// State numbers times tokens that are worth a job.
const LEAST: usize = 1 << 14;

/// Cost of a step of a number of a state, in multiply-adds: some of them take an exponential.
const STEP: u64 = 16;
