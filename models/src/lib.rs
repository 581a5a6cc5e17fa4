//! Language models on CPUs: GGUF files, vocabularies, graphs, contexts, samplers, sessions.
//!
//! A [`Model`] is immutable and shared; a [`Context`] holds what changes: sequences that can be appended to, forked
//! and rolled back, exactly, for every kind of model. A [`Session`] is the layer above for programs: text that is
//! generated, taken back, branched and saved, with the samplers that continue it.
//!
//! ```
//! use backstitch_models::sampler::Settings;
//! use backstitch_models::session::{GenerateOptions, Randomness, Session};
//! use backstitch_models::vocab::ParseSpecial;
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let ctx = Context::new(&model, Params::default().n_ctx(64))?;
//! let mut session = Session::new(ctx, &Settings::default().temp(0.0))?;
//! session.prompt(&session.tokenize("Once upon a time", ParseSpecial::No))?;
//! let mut text = String::new();
//! for piece in session.generate(GenerateOptions::default().limit(5)) {
//!     text += &piece?.text;
//! }
//! assert_eq!(text, ", there was a little");
//! session.regenerate(Randomness::Repeat)?; // as if nothing had been told
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same by hand, with a context and a chain of samplers:
//!
//! ```
//! use backstitch_models::sampler::{Chain, Greedy};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
//! let mut tokens = Vec::new();
//! model.vocab().tokenize("Once upon a time", AddSpecial::Yes, ParseSpecial::No, &mut tokens);
//!
//! let story = ctx.sequence()?;
//! ctx.append(story, &tokens)?;
//! let mark = ctx.pos(story)?;
//! let mut chain = Chain::builder(model.vocab().n_vocab()).with(Greedy).build();
//! let mut text = Vec::new();
//! for _ in 0..5 {
//!     let token = chain.sample(ctx.logits(story)?).unwrap_or_default();
//!     text.extend_from_slice(model.vocab().piece(token));
//!     ctx.append(story, &[token])?;
//! }
//! assert_eq!(String::from_utf8(text)?, ", there was a little");
//! ctx.rollback(story, mark)?; // as if nothing had been told
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without the feature `std` the crate needs only `alloc`: models come from bytes ([`Model::from_bytes`]) and one thread runs them.
//!
//! # Whole programs
//!
//! They lie in the package's folder `examples`, and `cargo run --example NAME` runs them. A copy in a crate of one's own needs
//! `backstitch-demo` too, which holds the small model that they run.
//!
//! ## Chat with branches
//!
//! A [`Session`] answers one question twice, from one shared past, and follows up one of the answers.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/chat.rs")]
#![doc = "```"]
//!
//! ## Editor with undo
//!
//! A [`Session`] takes words back and puts them there again.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/undo_editor.rs")]
#![doc = "```"]
//!
//! ## Eight sequences in one batch
//!
//! A [`Context`] generates eight texts at once, each with the bits that it has alone.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/batch.rs")]
#![doc = "```"]
//!
//! ## Embeddings
//!
//! A [`Context`] of an encoder tells how near the meanings of texts are.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/embeddings.rs")]
#![doc = "```"]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod arch;
mod budget;
mod cancel;
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
mod normalize;
mod pack;
mod runner;
pub mod sampler;
pub mod session;
mod setters;
pub mod speculative;
pub mod vocab;
mod weights;

// What the interface names of the layers below, so that nobody has to name versions of them.
pub use {backstitch_core, backstitch_kv};

pub use backstitch_core::KernelSet;
pub use backstitch_core::cell::CellType;
pub use backstitch_kv::state::Fingerprint;
#[cfg(feature = "std")]
pub use backstitch_kv::state::Saved;
#[cfg(feature = "std")]
pub use backstitch_kv::store;
pub use backstitch_kv::survey::Survey;
pub use backstitch_kv::{Batch, Fit, Means, Pos, SeqId, Stretch, TimelineParams, Token, Wanted};
pub use budget::Budget;
pub use cancel::Cancel;
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
pub use normalize::{Norm, normalize};
pub use pack::PackedModel;
pub use session::Session;

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
