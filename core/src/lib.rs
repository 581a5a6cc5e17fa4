//! Numbers for language models on CPUs.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(test, not(feature = "std")))]
extern crate std;

pub mod attention;
pub mod block;
pub mod cell;
pub mod checksum;
pub mod dtype;
pub mod error;
pub mod isa;
mod kernels;
pub mod math;
pub mod matmul;
pub mod packed;
pub mod pool;
pub mod quantized;
pub mod rope;
pub mod scan;

pub use dtype::DType;
pub use error::Error;
pub use isa::KernelSet;
pub use matmul::{Input, Product, Write, matmul};
pub use packed::{Packed, PackedType};
pub use pool::Pool;
pub use quantized::{Quantized, quantize};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
