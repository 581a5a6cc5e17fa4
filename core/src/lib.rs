//! Numbers for language models on CPUs: the same bits on every instruction set.
//!
//! This crate knows element types, packed weights, kernels, instruction sets and threads. It knows
//! nothing of sequences, files or models. It needs neither `std` nor `alloc`: callers bring all
//! memory, and nothing here allocates, except a thread pool when it is made.
//!
//! A layer of a transformer is, from here, four calls:
//!
//! 1. [`quantize`] turns rows of floats into 8-bit integers, once for all matrices that they meet.
//! 2. [`matmul`](fn@matmul) multiplies them by [`Packed`] weights: panels of sixteen rows in any of
//!    the types that [`PackedType`] lists.
//! 3. [`attention::store`] puts keys and values into cells of a paged cache, and
//!    [`attention::Attention::run`] attends to them.
//! 4. Norms, gates, RoPE and the recurrences of [`scan`] do the rest.
//!
//! All of them take a [`KernelSet`], the kernels compiled for one instruction set, and most of them
//! a [`Pool`] to share the work out. The set and the number of threads never change a bit of a
//! result: lanes are outputs, sums run in a fixed order, and threads split outputs.
//! `ARCHITECTURE.md` has the reasons.
//!
//! Modules from the ground up: [`block`] (formats of files), [`dtype`], [`packed`] (formats of
//! panels), [`quantized`] (activations), [`isa`] (vectors), [`kernel_set`] (the table of kernels);
//! on these stand [`mod@matmul`], [`attention`] over [`cell`], [`rope`], [`scan`], [`checksum`];
//! [`pool`] shares out.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Cells, panels and files hold numbers as they lie in memory, the lowest byte first.
#[cfg(not(target_endian = "little"))]
compile_error!("backstitch needs a little-endian processor");
// Workers claim jobs, and models are shared by counted references.
#[cfg(not(all(target_has_atomic = "32", target_has_atomic = "ptr")))]
compile_error!("backstitch needs atomic compare-and-swap; of the Cortex-M processors, M3 and later have it");

#[cfg(all(test, not(feature = "std")))]
extern crate std;

pub mod attention;
pub mod block;
pub mod cell;
pub mod checksum;
mod convert;
pub mod dtype;
pub mod error;
mod float;
mod format;
pub mod isa;
pub mod kernel_set;
mod kernels;
mod math;
pub mod matmul;
pub mod packed;
pub mod pool;
pub mod quantized;
pub mod rope;
pub mod scan;

pub use dtype::DType;
pub use error::Error;
pub use kernel_set::{KernelSet, SetUnavailable};
pub use matmul::{Input, Product, Write, matmul};
pub use packed::{Packed, PackedType};
pub use pool::Pool;
pub use quantized::{Quantized, quantize};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
