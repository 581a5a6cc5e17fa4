//! Kernels: the inner loops, written once over [`Simd`](crate::isa::Simd); a file an operation.
//!
//! A kernel is a generic function `fn name<S: Simd>(s: S, ...)`, always inlined, whose first
//! parameter is the token of an instruction set. [`KernelSet`](crate::KernelSet) instantiates each
//! kernel with every set, inside a function that is compiled for the set's features. Structs with
//! the parameters of an operation stand beside its kernel; the modules [`crate::matmul`],
//! [`crate::attention`], [`crate::rope`] and [`crate::scan`] check them, share the work out between
//! threads, and call the kernels.
//!
//! Rules that keep the bits equal on every set:
//!
//! - A sum goes along one lane in a fixed order. Where a sum over all elements of a row cannot be
//!   avoided (norms, softmax), it runs over sixteen lanes and then through the fixed tree of
//!   [`Simd::sum`](crate::isa::Simd::sum).
//! - Every multiplication whose product is added is fused; nothing is left to the compiler's
//!   choice.
//! - How many vectors go side by side may depend on the set; what happens to one lane may not.
//! - No closures that take vectors, except very small ones: a closure does not inherit the features
//!   that its function is compiled for, and an intrinsic inside it becomes a call.

pub(crate) mod attention;
pub(crate) mod checksum;
pub(crate) mod conv;
pub(crate) mod delta;
pub(crate) mod gla;
pub(crate) mod glu;
pub(crate) mod kda;
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
