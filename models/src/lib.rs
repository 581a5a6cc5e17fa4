//! Language models on CPUs: GGUF files, vocabularies, graphs, contexts, samplers, sessions.
//!
//! A [`Model`] is immutable and shared. A [`Context`] has the mutable state: sequences that can be
//! appended to, forked and rolled back, exactly, for every kind of model. A [`Session`] is the
//! layer above for programs: text that is generated, rolled back, branched and saved, together with
//! its samplers.
//!
//! | module or type | content |
//! |---|---|
//! | [`gguf`] | reading and writing GGUF files |
//! | [`Model`], [`PackedModel`] | weights, hyper-parameters and vocabulary of a file |
//! | [`arch`], [`graph`] | the supported architectures, and the graphs that describe them |
//! | [`vocab`], [`chat`] | tokenisers and chat templates |
//! | [`adapter`] | LoRA adapters and control vectors |
//! | [`Context`] | evaluation of batches of sequences, rollback, forks, state files |
//! | [`sampler`] | sampler chains |
//! | `grammar` (feature) | output by JSON schema, regular expression, Lark or GBNF |
//! | [`Session`] | generation in branches, with samplers |
//! | [`speculative`] | speculative decoding |
//! | [`error`] | the error type of the crate |
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
//! for chunk in session.generate(GenerateOptions::default().limit(5)) {
//!     text += &chunk?.text;
//! }
//! assert_eq!(text, ", there was a little");
//! session.regenerate(Randomness::Repeat)?; // as if nothing had been generated
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The lower layer does the same with a context and a chain of samplers:
//!
//! ```
//! use backstitch_models::sampler::{Chain, Greedy};
//! use backstitch_models::vocab::{AddSpecial, ParseSpecial};
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
//! let mut tokens = Vec::new();
//! model.vocab().tokenize("Once upon a time", AddSpecial::Start, ParseSpecial::No, &mut tokens);
//!
//! let seq = ctx.sequence()?;
//! ctx.append(seq, &tokens)?;
//! let start = ctx.pos(seq)?;
//! let mut chain = Chain::builder(model.vocab().n_vocab()).with(Greedy).build();
//! let mut text = Vec::new();
//! for _ in 0..5 {
//!     let token = chain.sample(ctx.logits(seq)?).ok_or("every token is banned")?;
//!     text.extend_from_slice(model.vocab().piece(token));
//!     ctx.append(seq, &[token])?;
//! }
//! assert_eq!(String::from_utf8(text)?, ", there was a little");
//! ctx.rollback(seq, start)?; // as if nothing had been generated
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `std` (default): opening files by path, detection of instruction sets, threads. Without it the
//!   crate needs only `alloc`, and a little-endian processor with atomic compare-and-swap (of the
//!   Cortex-M, M3 and later): models come from bytes ([`Model::from_bytes`]), and one thread runs
//!   them. Give it 512 KiB of stack, where tiles of matrices and attention lie: on x86-64 prompts
//!   of many tokens took up to 256 KiB, and single tokens up to 128 KiB.
//! - `chat` (default): chat templates.
//! - `amx` (default), `avx512`: kernel sets of x86-64.
//! - `zstd`: compressed state files.
//! - `grammar`: output that matches a grammar, by llguidance (20 crates more).
//! - `conformance`: replay of conformance files, for tests and `backstitch verify`.
//!
//! # Whole programs
//!
//! The package's folder `examples` has whole programs, and `cargo run --example NAME` runs them. A
//! copy in another crate also needs `backstitch-demo`, which holds the small model that they run.
//!
//! ## Chat with branches
//!
//! A [`Session`] answers one question twice, from one shared past, and continues one of the
//! answers.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/chat.rs")]
#![doc = "```"]
//!
//! ## Editor with undo
//!
//! A [`Session`] undoes and redoes typed words.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/undo_editor.rs")]
#![doc = "```"]
//!
//! ## Eight sequences in one batch
//!
//! A [`Context`] generates eight texts at once, each with the same bits as alone.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/batch.rs")]
#![doc = "```"]
//!
//! ## Embeddings
//!
//! A [`Context`] of an encoder compares the meanings of texts.
//!
#![doc = "```no_run"]
#![doc = include_str!("../examples/embeddings.rs")]
#![doc = "```"]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod adapter;
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
#[cfg(feature = "grammar")]
pub mod grammar;
pub mod graph;
mod hparams;
pub mod judge;
pub mod llama_files;
mod model;
mod nearest;
mod normalize;
mod pack;
mod params;
mod runner;
pub mod sampler;
mod saved_reader;
pub mod session;
mod setters;
pub mod speculative;
pub mod vocab;
mod weights;

// Types of the layers below that appear in this crate's interface, so that users need not depend on
// matching versions of them.
pub use {backstitch_core, backstitch_kv};

pub use backstitch_core::KernelSet;
pub use backstitch_core::cell::CellType;
pub use backstitch_kv::storage::Fingerprint;
#[cfg(feature = "std")]
pub use backstitch_kv::storage::Saved;
#[cfg(feature = "std")]
pub use backstitch_kv::storage::prompt_cache;
pub use backstitch_kv::survey::Survey;
pub use backstitch_kv::{Batch, CostRange, Fit, Pos, RollbackCost, RollbackParams, SeqId, Token, Wanted};
pub use budget::Budget;
pub use cancel::Cancel;
#[cfg(feature = "std")]
pub use context::Recalled;
pub use context::sections;
pub use context::{
    Context, RestoreOptions, Restored, RestoredSequence, Rollback, SaveOptions, SavedAdapters, SavedContext,
    SavedSequence,
};
pub use error::Error;
pub use fingerprint::fingerprint;
pub use hparams::{
    Experts, Hparams, Kda, LayerHparams, Pattern, Pooling, RopeParams, RopeScaling, Scales, Ssm, Windows, Wkv,
};
#[cfg(feature = "std")]
pub use model::LoadParams;
pub use model::Model;
pub use nearest::Nearest;
pub use normalize::{Norm, normalize};
pub use pack::PackedModel;
pub use params::Params;
pub use runner::observe::{Observer, ProductInput};
pub use runner::outputs::SharedLogits;
pub use session::Session;

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
