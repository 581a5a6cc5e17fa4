//! Rollbacks: the earlier positions to which each sequence can return, and what that costs.
//!
//! A *checkpoint* is what a memory needs to go on from a position: the recurrent states there, and
//! the cells that windows see from there. The live sequence shares both by reference, so making a
//! checkpoint copies nothing. A KV cache of all cells needs no checkpoints, since it can be cut
//! anywhere.
//!
//! This module decides which checkpoints and journals exist. The caches retain what belongs to a
//! checkpoint under its number.

mod adopt;
mod checkpoints;
mod evict;
mod pins;
mod route;
mod segments;
mod survey;

pub(crate) use checkpoints::{Checkpoint, Checkpoints, ListedCheckpoint};
pub(crate) use pins::HeldEnd;
pub use route::{CostRange, RollbackCost, Route};
