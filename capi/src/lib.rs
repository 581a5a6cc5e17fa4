//! The C interface of Backstitch: the functions of `llama.h`, and its own with the prefix `bst_`.
//!
//! Programs and bindings that speak llama.h link with this library in the place of llama.cpp, and
//! get exact rollback, transactions and durable states without a changed line. The header is
//! `include/llama.h`; `include/backstitch.h` has what llama.h cannot say. [docs/c-interface.md] of
//! the repository is the guide.
//!
//! | module | content |
//! |---|---|
//! | [`border`] | arguments of C, checked; calls that cannot unwind |
//! | [`handles`] | handles, checked against use after free |
//! | [`layouts`] | structures passed by value, as one version of the header has them |
//! | [`model`], [`vocab`], [`chat`], [`quantize`] | models, tokens, templates |
//! | [`context`], [`batch`], [`batch_ext`], [`decode`] | evaluation |
//! | [`memory`], [`state`] | sequences, and what outlives the process |
//! | [`sampler`] | samplers, chains, and samplers of programs |
//! | [`adapter`], [`absent`], [`aliases`], [`names`], [`ggml`], [`log`] | the rest of llama.h |
//! | [`bst`] | the functions of Backstitch's own |
//!
//! This is the only crate whose functions take addresses of C. What they may rely on is stated at
//! [`border`]; every block of `unsafe` says which claim makes it sound.
//!
//! [docs/c-interface.md]: https://github.com/backstitch/backstitch/blob/main/docs/c-interface.md

pub mod absent;
pub mod adapter;
pub mod aliases;
pub mod batch;
pub mod batch_ext;
pub mod border;
pub mod bst;
pub mod chat;
pub mod context;
pub mod decode;
pub mod error;
pub mod ggml;
pub mod handles;
pub mod layouts;
pub mod log;
pub mod memory;
pub mod model;
pub mod names;
pub mod quantize;
mod replace;
pub mod sampler;
pub mod state;
pub mod vocab;
