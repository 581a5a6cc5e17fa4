//! Numbers for language models on CPUs.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod cell;
pub mod isa;
mod kernels;
pub mod math;

pub use isa::KernelSet;
