//! Plans: reserving cells and states for a batch in all caches, and what compute reads and writes
//! of them.
//!
//! A plan goes through `reserve`, a `begin` for each ubatch, and `commit` or `undo`. What is
//! reserved is in the tables at once but becomes part of the sequences with the commit only, so
//! `undo` restores every cache exactly.

use super::cross::CrossCache;
use super::kv::{KvCache, copies};
use super::operation::Pass;
use super::view::{Attention, StateSegment, States, Store};
use super::{Caches, RecurrentCache};
use crate::batch::Batch;
use crate::batch::split::{Span, Split, SplitBatch};
use crate::error::Error;
use crate::external::CellCopy;
use core::ops::Range;

impl Caches {
    /// Return the way in which a batch must be split for a pass: the most demanding one that a
    /// cache asks for.
    pub fn split(&self, pass: Pass) -> Split {
        let kv = self.kv.iter().filter(|kv| joins(kv, pass, self.cross.is_some())).map(KvCache::split);
        let states = self.states.as_ref().filter(|_| pass == Pass::Decode).map(|_| Split::Equal);
        kv.chain(states).max().unwrap_or(Split::Simple)
    }

    /// Reserve cells and states for a whole batch in all caches; the caller undoes it on error.
    ///
    /// # Errors
    /// - [`Error::Full`] if no blocks or states are free.
    /// - [`Error::Diverged`] if the sequences of a token hold different cells.
    /// - [`Error::NotEncoded`] if a sequence has no encoder output.
    /// - [`Error::TooMany`] if a sequence of an encoder does not fit into a ubatch.
    /// - [`Error::OutOfMemory`] if a list cannot grow.
    pub fn reserve(&mut self, batch: &Batch, split_batch: &SplitBatch, pass: Pass) -> Result<(), Error> {
        let has_cross = self.cross.is_some();
        let mut kv = self.kv.iter_mut().filter(|kv| joins(kv, pass, has_cross));
        kv.try_for_each(|kv| kv.reserve(batch, split_batch))?;
        self.cross.iter_mut().try_for_each(|cross| cross.reserve(batch, split_batch, pass))?;
        let mut states = self.states.iter_mut().filter(|_| pass == Pass::Decode);
        states.try_for_each(|states| states.reserve(batch, split_batch))
    }

    /// Check that there are cells for a batch of any length, as far as that can be said before it
    /// is split.
    pub fn check_cells(&self, batch: &Batch) -> Result<(), Error> {
        self.kv.iter().filter(|kv| kv.keeps_all()).try_for_each(|kv| kv.check_cells(batch))
    }

    /// Make the caches ready for ubatch `number`, before it is computed.
    pub fn begin(&mut self, number: u32) {
        self.kv.iter_mut().for_each(|kv| kv.begin(number));
    }

    /// Make what was reserved part of the sequences.
    pub fn commit(&mut self) {
        self.kv.iter_mut().for_each(KvCache::commit);
        self.cross.iter_mut().for_each(CrossCache::commit);
        self.states.iter_mut().for_each(RecurrentCache::commit);
    }

    /// Release the cells that sequences of the committed plan no longer see.
    pub fn release_unseen(&mut self) {
        self.kept_mut().for_each(KvCache::release_unseen);
    }

    /// Release what was reserved.
    pub fn undo(&mut self) {
        self.kv.iter_mut().for_each(KvCache::undo);
        self.cross.iter_mut().for_each(CrossCache::undo);
        self.states.iter_mut().for_each(RecurrentCache::undo);
    }

    /// Return the keys and values of `layer` as tokens `range` of the split batch see them.
    pub fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let place = self.layers.get(layer)?.attention?;
        match self.kv.get(place.cache) {
            Some(kv) => kv.attention(place.layer, tokens),
            None => self.cross.as_ref()?.attention(place.layer, tokens),
        }
    }

    /// Return the cells in which tokens `range` of the split batch store their keys and values of
    /// `layer`.
    pub fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let place = self.layers.get(layer).filter(|layer| !layer.is_shared)?.attention?;
        self.cells_mut(place.cache)?.store(place.layer, tokens)
    }

    /// Return tensor `tensor` of the states of `layer`, for `segments` of the split batch.
    pub fn states_at(&mut self, layer: usize, tensor: usize, segments: Range<usize>) -> Option<States<'_>> {
        let layer = self.layers.get(layer)?.recurrent?;
        self.states.as_mut()?.states(layer, tensor, segments)
    }

    /// Return the segments of a ubatch that step states, tokens counted from the start of the
    /// ubatch.
    pub fn segments<'a>(&'a self, span: &Span) -> impl Iterator<Item = StateSegment> + use<'a> {
        let (segments, first) = (span.segments.clone(), span.tokens.start as u32);
        let segments = self.states.as_ref().and_then(|states| states.segments.get(segments));
        segments.into_iter().flatten().map(move |segment| segment.counted_from(first))
    }

    /// Return the copies of cells before ubatch `number`.
    pub fn cell_copies(&self, number: u32) -> impl Iterator<Item = CellCopy> + '_ {
        self.kv.iter().zip(0..).flat_map(move |(kv, cache)| {
            let own = copies(&kv.swaps).filter(move |(ubatch, _)| *ubatch == number);
            own.map(move |(_, copy)| CellCopy { cache, ..copy })
        })
    }
}

/// Return true if a KV cache takes part in a pass.
///
/// In a model with cross-attention, caches of one batch belong to the encoder and all others to the
/// decoder. Any other model has one kind of pass.
fn joins(kv: &KvCache, pass: Pass, has_cross: bool) -> bool {
    match pass {
        Pass::Encode => !kv.keeps(),
        Pass::Decode => kv.keeps() || !has_cross,
    }
}
