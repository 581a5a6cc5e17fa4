//! KV caches and recurrent states of language models, with forks, exact rollback and snapshots.
//!
//! A [`Memory`] keeps what a model has computed for its sequences. An engine describes its layers
//! ([`LayerSpec`]), fills a [`Batch`] with tokens and positions, and calls [`Memory::prepare`].
//! That reserves cells for all tokens or fails without a trace, and returns a [`Plan`]: ubatches to
//! compute, each with the cells and states that its layers read and write. [`Plan::commit`] appends
//! the batch to its sequences; dropping the plan undoes it.
//!
//! The crate knows neither architectures nor the meaning of tokens, and needs only `alloc`.
//!
//! # Example
//!
//! A toy engine with one layer, whose output is the sum of all values that a token attends to:
//!
//! ```
//! use backstitch_core::cell::CellType;
//! use backstitch_kv::snapshot::Owned;
//! use backstitch_kv::{
//!     AttentionLayer, AttentionSpec, Batch, Error, LayerSpec, Memory, Params, Plan, Pos, SeqId,
//!     Token, Wanted,
//! };
//!
//! fn batch(seq: SeqId, start: i32, tokens: &[u32]) -> Result<Batch, Error> {
//!     let tokens: Vec<Token> = tokens.iter().map(|&token| Token(token)).collect();
//!     let mut batch = Batch::new();
//!     batch.extend(seq, Pos(start), &tokens, Wanted::Last)?;
//!     Ok(batch)
//! }
//!
//! /// Store each token as its key and value; return the sum of the values that the last one sees.
//! fn compute(mut plan: Plan<'_>) -> Result<f32, Error> {
//!     let mut sum = 0.0;
//!     while let Some(mut ubatch) = plan.next_ubatch() {
//!         let rows: Vec<f32> = ubatch.tokens().iter().map(|token| token.token.0 as f32).collect();
//!         if let Some(mut store) = ubatch.store(0) {
//!             store.put(&rows, &rows)?;
//!         }
//!         let Some(view) = ubatch.attention(0) else { continue };
//!         let Some(last) = view.visible().last() else { continue };
//!         sum = 0.0;
//!         for slot in last.lo..last.hi {
//!             // The block table has an entry per 32 slots.
//!             let entry = view.table(last)[slot as usize / 32];
//!             if entry.live >> (slot % 32) & 1 == 1 {
//!                 let Some(block) = view.blocks.get(entry.block) else { continue };
//!                 let mut value = [0.0];
//!                 view.layout.load_v(block, slot as usize % 32, &mut value);
//!                 sum += value[0];
//!             }
//!         }
//!     }
//!     plan.commit()?;
//!     Ok(sum)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, ..AttentionLayer::default() };
//! let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
//! let params = Params::default().n_ctx(256).n_seq_max(2).n_batch(64);
//! let params = params.k_type(CellType::F32).v_type(CellType::F32);
//! let mut memory = Memory::new(&layers, &params)?;
//! let (a, b) = (SeqId(0), SeqId(1));
//! assert_eq!(compute(memory.prepare(&batch(a, 0, &[1, 2, 3, 4])?, 16)?)?, 10.0);
//!
//! // Fork: both sequences share one block, until one of them appends and moves to a copy.
//! memory.seq_cp(a, b, Pos::ZERO..Pos::MAX)?;
//! assert_eq!(compute(memory.prepare(&batch(b, 4, &[5])?, 16)?)?, 15.0);
//!
//! // Rollback: this layer retains all cells, so nothing has to be re-evaluated.
//! let rewind = memory.rewind(a, Pos(2), 16)?;
//! assert_eq!(rewind.route().reevaluated, 0);
//! rewind.commit()?;
//! assert_eq!(compute(memory.prepare(&batch(a, 2, &[9])?, 16)?)?, 12.0);
//!
//! // Savepoint: committed plans are undone together if it is dropped.
//! let mut savepoint = memory.savepoint(&[b])?;
//! assert_eq!(compute(savepoint.prepare(&batch(b, 5, &[6])?, 16)?)?, 21.0);
//! assert_eq!(compute(savepoint.prepare(&batch(b, 6, &[7])?, 16)?)?, 28.0);
//! drop(savepoint);
//! assert_eq!(memory.seq_pos_max(b), Some(Pos(4)));
//!
//! // Snapshot: export both sequences, and import them into another memory.
//! let owned = Owned::copy(&memory.export(&[a, b])?);
//! let mut other = Memory::new(&layers, &params.n_ctx(128))?;
//! other.import(&owned.snapshot, &owned, &[a, b], false)?.commit();
//! assert_eq!(compute(other.prepare(&batch(b, 5, &[8])?, 16)?)?, 23.0);
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | task | types |
//! |---|---|
//! | describe layers and sizes | [`LayerSpec`], [`AttentionSpec`], [`StateTensor`], [`Params`] |
//! | decode and encode | [`Batch`], [`Plan`], [`Ubatch`], [`Attention`], [`Store`], [`States`] |
//! | fork, remove and shift tokens | [`Memory::seq_cp`], [`Memory::seq_rm`], [`Memory::seq_add`] |
//! | roll back | [`RollbackParams`], [`Memory::pin`], [`Memory::rewind`], [`Rewind`] |
//! | undo several steps at once | [`Savepoint`] |
//! | export and import sequences | [`snapshot`], [`Export`], [`Import`] |
//! | save snapshots to files | [`storage`], with `std` also a prompt cache |
//! | keep cells outside, on a GPU for example | [`external`], [`Memory::without_storage`] |
//! | see which blocks a sequence uses | [`survey`], [`Memory::survey`] |
//! | test your own storage and files | `testing` (a feature): oracle, programs, failing disk |
//!
//! # An engine with its own storage
//!
//! `examples/own_storage.rs` stores cells where the memory cannot see them and follows its plans:
//!
#![cfg_attr(feature = "testing", doc = "```no_run")]
#![cfg_attr(not(feature = "testing"), doc = "```ignore")]
#![doc = include_str!("../examples/own_storage.rs")]
#![doc = "```"]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arena;
mod batch;
mod cache;
mod error;
pub mod external;
#[cfg(feature = "std")]
pub mod file;
mod ids;
pub mod io;
mod kind;
mod layer;
mod memory;
mod params;
pub mod reserve;
mod rollback;
pub mod rollback_cost;
mod setters;
pub mod snapshot;
pub mod storage;
pub mod survey;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use batch::split::UbatchToken;
pub use batch::{Batch, Wanted};
pub use cache::view::{Attention, Cell, StateSegment, States, Store, Visible};
pub use error::{Error, Size};
pub use ids::{Pos, SeqId, Token};
pub use kind::{Kind, Operation, Retention};
pub use layer::{AttentionLayer, AttentionSpec, LayerSpec, Rotation, StateTensor, Window};
pub use memory::Memory;
pub use memory::plan::{Plan, Ubatch};
pub use memory::rewind::Rewind;
pub use memory::savepoint::Savepoint;
pub use params::{MemoryBytes, Params, RollbackParams};
pub use rollback::{CostRange, RollbackCost, Route};
pub use snapshot::export::Export;
pub use snapshot::import::{Conversion, Fit, Import, ImportError};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
