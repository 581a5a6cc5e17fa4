//! Kernels, written once over [`Simd`](crate::isa::Simd): a file an operation.

pub(crate) mod attention;
pub(crate) mod checksum;
pub(crate) mod conv;
pub(crate) mod delta;
pub(crate) mod glu;
pub(crate) mod map;
pub(crate) mod norm;
pub(crate) mod peak;
pub(crate) mod rotate;
pub(crate) mod sampling;
pub(crate) mod selective;
pub(crate) mod ssd;
pub(crate) mod stored;
pub(crate) mod values;
pub(crate) mod wkv6;
pub(crate) mod wkv7;

pub(crate) mod matmul;
pub(crate) mod quantised_cells;
pub(crate) mod quantize;
#[cfg(test)]
mod tests;
