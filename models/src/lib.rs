//! Language models on CPUs: GGUF files, vocabularies, graphs, contexts, samplers.
//!
//! A [`Model`] is immutable and shared; a [`Context`] holds what changes: sequences that can be appended to, forked
//! and rolled back, exactly, for every kind of model.
//!
//! ```
//! use backstitch_models::sampler::{Chain, Greedy};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::open("../demo/demo.gguf")?;
//! let mut ctx = Context::new(&model, Params { n_ctx: 64, ..Params::default() })?;
//! let mut tokens = Vec::new();
//! model.vocab().tokenize("Once upon a time", AddSpecial::Yes, ParseSpecial::No, &mut tokens);
//!
//! let story = ctx.sequence()?;
//! ctx.append(story, &tokens)?;
//! let mark = ctx.pos(story);
//! let mut chain = Chain::builder(model.vocab().n_vocab() as usize).with(Greedy).build();
//! let mut text = Vec::new();
//! for _ in 0..5 {
//!     let token = chain.sample(ctx.logits(story).unwrap_or(&[])).unwrap_or_default();
//!     text.extend_from_slice(model.vocab().piece(token));
//!     ctx.append(story, &[token])?;
//! }
//! assert_eq!(String::from_utf8(text)?, ", there was a little");
//! ctx.rollback(story, mark)?; // as if nothing had been told
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without the feature `std` the crate needs only `alloc`: models come from bytes ([`Model::from_bytes`]) and one thread runs them.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod arch;
#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
pub mod error;
mod fingerprint;
pub mod gguf;
pub mod graph;
mod hparams;
mod llama_state;
mod model;
mod pack;
mod runner;
pub mod sampler;
pub mod speculative;
pub mod vocab;
mod weights;

pub use backstitch_kv::state::Fingerprint;
pub use backstitch_kv::{Batch, Means, Pos, SeqId, Stretch, TimelineParams, Token};
#[cfg(feature = "std")]
pub use context::Recalled;
pub use context::sections;
pub use context::{
    Context, Params, Pooling, RestoreOptions, Restored, RestoredSequence, Rollback, SaveOptions,
};
pub use error::Error;
pub use fingerprint::fingerprint;
pub use hparams::{Experts, Hparams, Pattern, RopeParams, RopeScaling, Ssm, Windows, Wkv};
#[cfg(feature = "std")]
pub use model::LoadParams;
pub use model::Model;
pub use pack::PackedModel;
