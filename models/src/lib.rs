//! Language models on CPUs.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod gguf;
pub mod sampler;
pub mod vocab;

pub use backstitch_kv::Token;
pub use error::Error;
