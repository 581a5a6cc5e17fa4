//! Memory of language models: sequences, positions, blocks, states.
//!
//! A [`Memory`] holds what a model has seen. A [`Batch`] names tokens and where they stand;
//! [`Memory::prepare`] finds room for all of it or refuses, and returns a [`Plan`]: ubatches to compute, each with the
//! cells and states that its layers read and write. [`Plan::commit`] makes the batch part of its sequences, dropping
//! the plan leaves no trace.
//!
//! The crate knows nothing of architectures or of what tokens mean, and needs only `alloc`.
//!
//! # An engine with storage of its own
//!
//! The program `examples/own_storage.rs` of the package keeps cells where the memory cannot see them and follows its plans:
//!
#![cfg_attr(feature = "oracle", doc = "```no_run")]
#![cfg_attr(not(feature = "oracle"), doc = "```ignore")]
#![doc = include_str!("../examples/own_storage.rs")]
#![doc = "```"]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod block;
mod error;
mod extent;
#[cfg(feature = "std")]
pub mod file;
mod ids;
pub mod image;
pub mod io;
mod layer;
#[cfg(feature = "std")]
mod lock;
mod memory;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod plan;
#[cfg(feature = "std")]
mod private;
mod rewind;
mod room;
mod split;
pub mod state;
pub mod storage;
#[cfg(feature = "std")]
pub mod store;
pub mod survey;
mod timeline;

pub use batch::{Batch, Wanted};
pub use error::Error;
pub use ids::{Pos, SeqId, Token};
pub use layer::{AttentionLayer, AttentionSpec, LayerSpec, MemoryBytes, Params, Rotation, StatePart, Window};
pub use memory::{
    Cell, Conversion, Fit, Hybrid, Kind, Memory, Operation, Snapshot, StageError, Staged, StateRun, Visible,
};
pub use plan::{Attention, Plan, States, Store, Ubatch};
pub use rewind::{Means, Rewind, Stretch};
pub use split::UbatchToken;
pub use timeline::{Route, TimelineParams};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
