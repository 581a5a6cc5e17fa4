//! Recurrent layers: a state is read, tokens step it in order, the new state is written.
//!
//! What is computed, on bits: each state number goes through the same operations in the order of the tokens, so where a
//! run of tokens is cut, how many threads share the heads, and which kernel set runs them makes no difference.

mod conv;
mod ssd;

pub use conv::Conv;
pub use ssd::Ssd;

/// State numbers times tokens that are worth a job.
const LEAST: usize = 1 << 14;
