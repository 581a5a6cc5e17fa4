//! Instruction sets: one vector interface, one kernel table a set, and the choice between them.
//!
//! Kernels (`crate::kernels`) are written once, over [`Simd`]: sixteen virtual `f32` lanes whose operations round
//! exactly alike everywhere. Each instruction set implements the trait in a file of its own and instantiates every
//! kernel with its features switched on; the results are plain function pointers in a [`KernelSet`].
//!
//! A set can only be had where the processor can run it: [`KernelSet::detect`] asks once a process,
//! [`KernelSet::available`] lists all that this machine can run, so that tests can hold them to each other.
//! The environment variable `BACKSTITCH_ISA` pins one by name: `amx`, `avx512`, `avx2`, or `scalar`, which runs anywhere.
//!
//! `amx` is the set of AVX-512 but for products of quantised weights with sixteen tokens and more. The process asks Linux
//! once for the permission it needs; where that is refused, the set is not there and all others are.

mod scalar;
mod simd;
mod table;

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

pub(crate) use scalar::Scalar;
pub(crate) use simd::lanes64;
pub use simd::{LANES, Simd};
pub use table::{KernelSet, SetUnavailable};
