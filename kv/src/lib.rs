//! Memory of language models: sequences, positions, blocks, states.
//!
//! A [`Memory`] holds what a model has seen. A [`Batch`] names tokens and where they stand;
//! [`Memory::prepare`] finds room for all of it or refuses, and returns a [`Plan`]: ubatches to compute, each with the
//! cells and states that its layers read and write. [`Plan::commit`] makes the batch part of its sequences, dropping
//! the plan leaves no trace.
//!
//! The crate knows nothing of architectures or of what tokens mean, and needs only `alloc`.
#![cfg_attr(not(feature = "std"), no_std)]

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
mod memory;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
mod plan;
mod rewind;
mod room;
mod split;
pub mod state;
#[cfg(feature = "std")]
pub mod store;
pub mod survey;
mod timeline;

pub use batch::Batch;
pub use error::Error;
pub use ids::{Pos, SeqId, Token};
pub use layer::{AttentionLayer, AttentionSpec, LayerSpec, Params, Rotation, StatePart, Window};
pub use memory::{
    Cell, Conversion, Fit, Hybrid, Kind, Memory, Operation, Snapshot, StageError, Staged, StateRun, Visible,
};
pub use plan::{Attention, Plan, States, Store, Ubatch};
pub use rewind::{Means, Rewind, Stretch};
pub use split::UbatchToken;
pub use timeline::{Route, TimelineParams};
