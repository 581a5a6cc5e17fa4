//! Memories without storage: their shape, and the copies that an engine has to make.
//!
//! An engine that keeps cells elsewhere, on a GPU for example, lets [`Memory`] manage blocks and
//! states and follows its instructions in storage of its own. The types of those instructions are
//! in [`crate::external`].

use super::Memory;
use crate::error::Error;
use crate::external::{CacheShape, Change, Home, StorageShape};
use crate::layer::LayerSpec;
use crate::params::Params;
use alloc::vec::Vec;

impl Memory {
    /// Return a memory that manages blocks and states without storing their bytes. The engine
    /// stores them; see [`external`](crate::external). Slices of bytes that this memory hands out
    /// are empty.
    ///
    /// # Errors
    /// - [`Error::Layer`] if the sizes of a layer are impossible.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn without_storage(layers: &[LayerSpec], params: &Params) -> Result<Memory, Error> {
        Memory::with_home(layers, params, Home::Elsewhere)
    }

    /// Return a memory that stores bytes and lists changes nevertheless, to compare both.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn listing(layers: &[LayerSpec], params: &Params) -> Result<Memory, Error> {
        Memory::with_home(layers, params, Home::Both)
    }

    /// Return the number of blocks and state slots, and the layers that they belong to.
    pub fn storage_shape(&self) -> StorageShape {
        let caches = self.caches.with_cells().enumerate().map(|(number, cells)| {
            let layers = self.caches.layers.iter().zip(0..).filter(|(layer, _)| {
                !layer.is_shared && layer.attention.is_some_and(|place| place.cache == number)
            });
            CacheShape {
                kind: cells.retained.kind(),
                layers: layers.map(|(_, layer)| layer).collect(),
                n_blocks: cells.pool.len() as u32,
            }
        });
        let states = self.caches.states.as_ref();
        StorageShape {
            caches: caches.collect(),
            n_states: states.map_or(0, |states| states.slots.len() as u32),
            n_rows: states.map_or(0, |_| self.checkpoints.n_rows()),
        }
    }

    /// Take the changes that operations made to cells since the last call, in the order in which
    /// the engine has to make them. Only a memory [without storage](Memory::without_storage) lists
    /// any.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.caches.take_changes()
    }

    /// Check that the caller has taken all changes: behind those of a plan they would be lost.
    pub(crate) fn check_followed(&mut self) -> Result<(), Error> {
        let n_changes = self.caches.n_changes() as u64;
        if n_changes == 0 { Ok(()) } else { Err(Error::Unfollowed { n_changes }) }
    }
}
