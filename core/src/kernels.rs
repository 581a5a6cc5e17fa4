//! Kernels, written once over [`Simd`](crate::isa::Simd): a file an operation.

pub(crate) mod map;
