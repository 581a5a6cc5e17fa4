//! Caches of a memory: KV caches, at most one cross-attention cache, and at most one recurrent
//! cache.
//!
//! The set of kinds is closed. A request that concerns all caches is a method of [`Caches`], which
//! passes it to the kinds that it matters to. Every request is checked by all caches before any of
//! them changes, so it happens in all layers or in none.
//!
//! - `kv`: keys and values of attention layers, by what is retained.
//! - `cross`: keys and values of the encoder output.
//! - `recurrent`: states of fixed size, and the journals of their inputs.
//! - `paged`, `block`, `bytes`, `table`, `layer`: paged cells, which both kinds of attention store.
//! - `charges`: blocks of checkpoints, each counted once.
//! - `slots`: reference counts of blocks and states.
//! - `plan`, `operation`, `rollback`, `survey`: requests to all caches.
//! - `view`: what compute reads and writes.
//!
//! Caches know positions and cells. Policy, such as which checkpoints exist, is in the `rollback`
//! module of the crate.

pub(crate) mod block;
mod bytes;
pub(crate) mod charges;
mod cross;
mod kv;
mod layer;
mod layers;
pub(crate) mod operation;
mod paged;
mod plan;
mod recurrent;
mod rollback;
mod slots;
mod survey;
pub(crate) mod table;
pub(crate) mod view;
mod window;

#[cfg(any(test, feature = "testing"))]
pub(crate) use layer::shift_cells;
pub(crate) use paged::PagedCells;
pub(crate) use recurrent::{CurrentState, HeldState, RecurrentCache};
pub(crate) use window::WindowCells;

use crate::error::Error;
use crate::external::{Change, Home};
use crate::ids::{Pos, SeqId};
use crate::kind::{Kind, Retention};
use crate::layer::{LayerSpec, Retained};
use crate::params::{Params, Sizes};
use alloc::vec::Vec;
use core::ops::Range;
use cross::CrossCache;
use kv::KvCache;
use layers::{LayerCaches, assign};
use operation::Op;

/// All caches of a memory, and the caches that each layer of the model uses.
///
/// Caches with cells are numbered, KV caches first, then the cross-attention cache; snapshots and
/// external storage use these numbers. All caches hold the same positions of a sequence, apart from
/// cells that windows released.
pub(crate) struct Caches {
    /// KV caches, one for each retention and window.
    kv: Vec<KvCache>,
    /// Cross-attention cache of an encoder-decoder.
    cross: Option<CrossCache>,
    /// Recurrent cache, if some layer is recurrent.
    pub states: Option<RecurrentCache>,
    /// Caches of each layer of the model.
    pub layers: Vec<LayerCaches>,
}

impl Caches {
    /// Make the caches of a model with these layers; everything is allocated here.
    ///
    /// # Errors
    /// [`Error::Layer`] if a layer shares the cells of a layer that has none;
    /// [`Error::OutOfMemory`] if the allocator refuses.
    pub fn new(layers: &[LayerSpec], params: &Params, sizes: &Sizes, home: Home) -> Result<Caches, Error> {
        let (assigned, layers_of) = assign(layers, params.n_ctx)?;
        let (mut kv, mut cross) = (Vec::with_capacity(assigned.len()), None);
        for (retained, own) in &assigned {
            match retained {
                Retained::EncoderOutput => cross = Some(CrossCache::new(own, params, home)?),
                _ => kv.push(KvCache::new(*retained, own, params, sizes, home)?),
            }
        }
        let is_recurrent = layers.iter().any(|spec| !spec.recurrent.is_empty());
        let states = is_recurrent.then(|| RecurrentCache::new(layers, params, sizes, home));
        Ok(Caches { kv, cross, states: states.transpose()?, layers: layers_of })
    }

    /// Return the kind of the only cache, or [`Kind::Hybrid`] if there are several.
    ///
    /// A model without caches keeps nothing beyond a batch, which is what [`Retention::Batch`]
    /// says.
    pub fn kind(&self) -> Kind {
        let states = self.states.as_ref().map(|_| Kind::Recurrent);
        let mut kinds = self.with_cells().map(|cells| cells.retained.kind()).chain(states);
        match (kinds.next(), kinds.next()) {
            (None, _) => Kind::Kv(Retention::Batch),
            (Some(kind), None) => kind,
            _ => Kind::Hybrid,
        }
    }

    /// Return the KV caches whose cells outlive a batch.
    fn kept(&self) -> impl Iterator<Item = &KvCache> {
        self.kv.iter().filter(|kv| kv.keeps())
    }

    /// Return the KV caches whose cells outlive a batch, to be changed.
    fn kept_mut(&mut self) -> impl Iterator<Item = &mut KvCache> {
        self.kv.iter_mut().filter(|kv| kv.keeps())
    }

    /// Check that all caches can do `op`, and make the room that it takes.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if a cache cannot do the operation on this range.
    /// - [`Error::Occupied`] if the target of a copy holds tokens.
    /// - [`Error::Overtakes`] if positions would no longer ascend.
    /// - [`Error::Full`] if no blocks are free for copies of shared ones.
    /// - [`Error::OutOfMemory`] if a list cannot grow.
    pub fn admit(&mut self, op: &Op) -> Result<(), Error> {
        self.kept_mut().try_for_each(|kv| kv.admit(op))?;
        self.cross.iter_mut().try_for_each(|cross| cross.admit(op))?;
        self.states.iter().try_for_each(|states| states.admit(op))
    }

    /// Do an operation that `admit` allowed.
    pub fn apply(&mut self, op: &Op) {
        self.kept_mut().for_each(|kv| kv.apply(op));
        self.cross.iter_mut().for_each(|cross| cross.apply(op));
        self.states.iter_mut().for_each(|states| states.apply(op));
    }

    /// Return the first position of `seq` that every layer still holds.
    pub fn pos_min(&self, seq: SeqId) -> Option<Pos> {
        let states = self.states.as_ref().and_then(|states| states.last_pos(seq));
        self.kept().filter_map(|kv| kv.pos_min(seq)).chain(states).max()
    }

    /// Return the last position of `seq`.
    pub fn pos_max(&self, seq: SeqId) -> Option<Pos> {
        let states = self.states.as_ref().and_then(|states| states.last_pos(seq));
        self.kept().filter_map(|kv| kv.pos_max(seq)).chain(states).min()
    }

    /// Return true if `seq` has seen a token in `range`, retained or not, and not removed since.
    ///
    /// A cache of all cells knows. Without one, removed tokens count too, as in `may_touch`.
    pub fn touches(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        let all = self.kept().find(|kv| kv.keeps_all());
        all.map_or_else(|| self.may_touch(seq, range), |all| all.touches(seq, range))
    }

    /// Return true if a cache has something to do for an operation on `range` of `seq`.
    pub fn may_touch(&self, seq: SeqId, range: &Range<Pos>) -> bool {
        self.kept().any(|kv| kv.touches(seq, range))
            || self.states.as_ref().is_some_and(|states| states.touches(seq, range))
    }

    /// Return true if `seq` has encoder output.
    pub fn has_encoder_output(&self, seq: SeqId) -> bool {
        self.cross.as_ref().is_some_and(|cross| !cross.cells.table(seq).is_empty())
    }

    /// Drop the encoder output of `seq`.
    pub fn drop_encoder_output(&mut self, seq: SeqId) {
        self.cross.iter_mut().for_each(|cross| cross.cells.empty(seq));
    }

    /// Return the most tokens of a sequence, or `None` if no cache retains all of them.
    pub fn limit(&self) -> Option<u32> {
        self.kv.iter().filter(|kv| kv.keeps_all()).map(|kv| kv.cells.n_ctx).min()
    }

    /// Return true if other users share cells of `seq` from `pos` on, in a cache whose blocks can
    /// run out.
    pub fn shares_cells(&self, seq: SeqId, pos: Pos) -> bool {
        self.kv.iter().any(|kv| kv.keeps_all() && kv.shares_blocks(seq, pos))
    }

    /// Return the cells of cache `number`, if they outlive a batch.
    pub fn cells(&self, number: usize) -> Option<&PagedCells> {
        self.with_cells().nth(number).filter(|cells| cells.retained.keeps())
    }

    /// Return the cells of cache `number`, to be changed.
    pub fn cells_mut(&mut self, number: usize) -> Option<&mut PagedCells> {
        self.with_cells_mut().nth(number)
    }

    /// Return the cells of each cache with cells, in the order of their numbers.
    pub fn with_cells(&self) -> impl Iterator<Item = &PagedCells> {
        let cross = self.cross.as_ref().map(|cross| &cross.cells);
        self.kv.iter().map(|kv| &kv.cells).chain(cross)
    }

    /// Return the cells of each cache with cells, to be changed, in the order of their numbers.
    fn with_cells_mut(&mut self) -> impl Iterator<Item = &mut PagedCells> {
        let cross = self.cross.as_mut().map(|cross| &mut cross.cells);
        self.kv.iter_mut().map(|kv| &mut kv.cells).chain(cross)
    }

    /// Take the changes that operations made to stored cells since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let mut taken = Vec::new();
        for (cells, number) in self.with_cells_mut().zip(0..) {
            let listed = cells.listed.iter_mut().flat_map(|listed| listed.drain(..));
            taken.extend(listed.map(|change| change.in_cache(number)));
        }
        taken
    }

    /// Return the number of changes that were not taken yet.
    pub fn n_changes(&self) -> usize {
        self.with_cells().filter_map(|cells| cells.listed.as_ref()).map(Vec::len).sum()
    }
}

/// Access for tests that compare a memory with a simple model of it.
#[cfg(any(test, feature = "testing"))]
impl Caches {
    /// Return the KV cache of a layer and the layer's number in it.
    pub fn kv_of(&self, layer: usize) -> Option<(&KvCache, usize)> {
        let place = self.layers.get(layer)?.attention?;
        Some((self.kv.get(place.cache)?, place.layer))
    }

    /// Return the recurrent cache and the number of a layer in it.
    pub fn states_of(&self, layer: usize) -> Option<(&RecurrentCache, usize)> {
        self.states.as_ref().zip(self.layers.get(layer)?.recurrent)
    }

    /// Return the number of free blocks of each cache whose cells outlive a batch.
    pub fn n_free_blocks(&self) -> impl Iterator<Item = u32> {
        self.with_cells().filter(|cells| cells.retained.keeps()).map(|cells| cells.pool.n_free())
    }

    /// Check that all caches add up.
    pub fn audit(&self) -> Result<(), alloc::string::String> {
        self.kv.iter().try_for_each(KvCache::audit)?;
        self.cross.iter().try_for_each(CrossCache::audit)?;
        self.states.iter().try_for_each(RecurrentCache::audit)
    }
}
