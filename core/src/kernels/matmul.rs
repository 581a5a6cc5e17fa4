//! Products of panels of weights with rows of activations.
//!
//! A kernel computes *tiles*: some panels (sixteen outputs each, one a lane) times some tokens,
//! with the accumulators in registers; this is what BLIS calls a microkernel. The size of a tile is
//! chosen by speed alone. Every output goes through the same operations in the same order whatever
//! the tile; [`crate::matmul`] lists them.
//!
//! | file | weights | tokens |
//! |---|---|---|
//! | `float.rs` | F32, F16, BF16 | any |
//! | `few_tokens.rs` | quantised, multiplied as they are read | few |
//! | `unpacked.rs` | quantised, unpacked once for up to 576 tokens | many |
//! | `tiles.rs` | quantised, on the tiles of AMX | 16 and more |
//! | `pairs.rs` | quantised, on ARM's I8MM | 4 and more |
//!
//! `integer.rs` chooses between the second and the third, `sums.rs` has the arithmetic that all of
//! the last four share, `sink.rs` writes outputs.

mod few_tokens;
mod float;
pub(crate) mod integer;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
pub(crate) mod pairs;
mod sink;
mod sums;
#[cfg(all(target_arch = "x86_64", feature = "amx"))]
pub(crate) mod tiles;
#[cfg(any(
    all(target_arch = "x86_64", feature = "amx"),
    all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
))]
mod tokens;
mod unpacked;

pub(crate) use float::{multiply_bf16, multiply_f16, multiply_f32};
pub use sink::Write;
