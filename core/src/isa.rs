//! Instruction sets: one vector interface, one kernel table a set, and the choice between them.
//!
//! Kernels (`crate::kernels`) are written once, over [`Simd`]: sixteen virtual `f32` lanes whose operations round
//! exactly alike everywhere. Each instruction set implements the trait in a file of its own and instantiates every
//! kernel with its features switched on; the results are plain function pointers in a [`KernelSet`].
//!
//! A set can only be had where the processor can run it: [`KernelSet::detect`] asks once a process,
//! [`KernelSet::available`] lists all that this machine can run, so that tests can hold them to each other.
//! The environment variable `BACKSTITCH_ISA` pins one by name: `amx`, `avx512`, `avx2`, or `scalar`, which runs anywhere;
//! on 64-bit ARM `i8mm`, `dotprod`, `neon`, or `scalar`; in WebAssembly `simd128` or `scalar`.
//!
//! `amx` is the set of AVX-512 but for products of quantised weights with sixteen tokens and more, rows of 24 blocks (768
//! columns) and more, and a type with one scale for each block of 32 columns: not Q2_K, Q3_K and Q6_K. Other products of such
//! weights are those of AVX-512. The process asks Linux once for the permission it needs; where that is refused, the set is
//! not there and all others are.
//!
//! The features `avx512` and `amx` of this crate leave these two sets out where they are not asked for: a program for other
//! processors is smaller by their kernels. Bits are the same with any set.
//!
//! `dotprod` is the set of NEON but for products of quantised weights, which use the instructions that multiply four bytes for each lane.
//! `i8mm` is that set but for products of quantised weights of the types that `amx` has tiles for: they use unsigned bytes, and, with four
//! tokens and more, instructions that multiply two tokens by two rows.
//!
//! `simd128` is there where the module was compiled with it (`RUSTFLAGS="-C target-feature=+simd128"`): a module has these
//! instructions or does not start. The relaxed ones are not used; what they return depends on the machine.

pub(crate) mod cache;
mod scalar;
mod simd;
pub(crate) mod stream;
mod table;

#[cfg(all(target_arch = "x86_64", feature = "amx"))]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod avx512;

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod mmla;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod neon;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;

#[cfg(test)]
mod operations;

pub use cache::second_cache;
pub(crate) use scalar::Scalar;
pub(crate) use simd::lanes64;
pub use simd::{LANES, Simd};
pub use table::{KernelSet, SetUnavailable};
