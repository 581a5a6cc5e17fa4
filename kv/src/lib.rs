//! Memory of language models.
#![cfg_attr(not(feature = "std"), no_std)]
extern crate alloc;

#[cfg(feature = "std")]
pub mod file;
mod ids;

pub use ids::{Pos, SeqId, Token};
