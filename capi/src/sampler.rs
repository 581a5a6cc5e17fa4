//! Samplers: those of the library, chains, and those that programs bring.
//!
//! A sampler is a structure that C can look into: a table of functions, and whatever these know it
//! by. So its handle is an address, unlike others. The registry knows the addresses that the
//! library gave out; freed ones stay in quarantine, where they are noticed. An address that it does
//! not know is a sampler that the program made itself, and is called by its table.
//!
//! `registry` keeps what is alive, `built_in` are the library's samplers, `make` the functions that
//! make them, `chain` the chains, `calls` what C calls.

mod built_in;
mod calls;
mod chain;
mod make;
mod registry;

pub use built_in::BuiltIn;
pub use calls::*;
pub use chain::*;
pub use make::*;
pub use registry::SamplerRef;
