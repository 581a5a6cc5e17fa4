//! Instruction sets: one vector interface, and one implementation a set.
//!
//! Kernels (`crate::kernels`) are written once, over [`Simd`]: sixteen virtual `f32` lanes whose
//! operations round exactly alike everywhere. An AVX-512 register is those lanes; AVX2 uses two
//! registers, NEON and WebAssembly's simd128 four, the scalar set an array. Each set implements the
//! trait in a file of its own. [`crate::kernel_set`] instantiates every kernel with every set and
//! chooses one.
//!
//! | set | differs from its base in | there where |
//! |---|---|---|
//! | `amx` | `avx512`, with products of many tokens on tiles | AMX-INT8, and Linux grants it |
//! | `avx512` | | AVX-512 F, BW, VL, DQ and VNNI |
//! | `avx2` | | AVX2, FMA and F16C |
//! | `i8mm` | `dotprod`, with products of quantised weights on I8MM | ARMv8.6 and later |
//! | `dotprod` | `neon`, with products of quantised weights on `sdot` | most since 2018 |
//! | `neon` | | 64-bit ARM |
//! | `simd128` | | modules compiled with it |
//! | `scalar` | | anywhere |
//!
//! Tiles of AMX multiply sixteen tokens and more by rows of 16 blocks (512 columns) and more, in
//! types with one scale for each block of 32 columns: not Q2_K, Q3_K, Q6_K, NVFP4, IQ1, IQ2 and
//! IQ3, whose products are those of AVX-512. The process asks Linux once for the permission; where
//! that is refused, the set is not there and all others are. I8MM multiplies the same types, four
//! tokens and more.
//!
//! The features `avx512` and `amx` of this crate leave these two sets out if they are not asked
//! for: a program for other processors is smaller by their kernels. Bits are the same with any set.
//!
//! WebAssembly has no detection: a module has simd128 (`RUSTFLAGS="-C target-feature=+simd128"`) or
//! has not. The relaxed instructions are not used; what they return depends on the machine.
//!
//! This module also asks the processor about its caches ([`second_cache`], [`near_third_cache`])
//! and which one it is.

pub(crate) mod cache;
pub(crate) mod processor;
mod scalar;
mod simd;
pub(crate) mod stream;

#[cfg(all(target_arch = "x86_64", feature = "amx"))]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod avx512;

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod mmla;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod neon;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm;

#[cfg(test)]
mod operations;

pub use cache::{near_third_cache, second_cache};
pub(crate) use scalar::Scalar;
pub(crate) use simd::lanes64;
pub use simd::{LANES, Simd};
