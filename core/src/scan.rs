//! Recurrent layers: a state is read, tokens step it in order, the new state is written.
//!
//! Each type here is the recurrence of one family of architectures, with its weights. `run` checks
//! the shapes, shares heads or channels out between threads, and calls the kernel; the arithmetic
//! is defined at the type. Every state element goes through the same operations in the order of the
//! tokens. Where a segment of tokens is cut, how many threads share the heads, and which kernel set
//! runs them therefore makes no difference.
//!
//! | type | architectures |
//! |---|---|
//! | [`Conv`] | the short convolution in front of most of them |
//! | [`Selective`] | Mamba-1, Jamba |
//! | [`Ssd`] | Mamba-2, Falcon-H1, Granite hybrid, Nemotron-H, PLaMo-2 |
//! | [`Delta`] | Qwen3-Next, Qwen3.5 |
//! | [`Kda`] | Kimi Linear |
//! | [`Gla`] | QRWKV 6 |
//! | [`Wkv6`], [`Wkv7`] | RWKV 6 and 7 |

mod conv;
mod cost;
mod delta;
mod gla;
mod heads;
mod kda;
mod selective;
mod ssd;
mod wkv6;
mod wkv7;

pub use crate::kernels::conv::Conv;
pub use crate::kernels::delta::{Delta, DeltaInputs, Sharing};
pub use crate::kernels::gla::{Gla, GlaInputs};
pub use crate::kernels::kda::{Kda, KdaInputs};
pub use crate::kernels::selective::{Selective, SelectiveInputs};
pub use crate::kernels::ssd::Ssd;
pub use crate::kernels::wkv6::{Wkv6, Wkv6Inputs};
pub use crate::kernels::wkv7::{Wkv7, Wkv7Inputs};
