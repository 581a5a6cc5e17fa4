//! Memories whose bytes somebody else keeps: what changes there, and where things lie.

use super::snapshot::Snapshot;
use super::unified::copies;
use super::{Hybrid, Kind, StateRun};
use crate::error::Error;
use crate::layer::{LayerSpec, Params};
use crate::storage::{CacheShape, CellCopy, Change, Home, Placement, PlanCopy, PlannedCopy, StorageShape};
use alloc::vec::Vec;
use core::ops::Range;

impl Hybrid {
    /// Makes a memory that keeps the books of cells and states but not their bytes, which an engine has in
    /// storage of its own; see [`storage`](crate::storage). Slices of bytes that it hands out are empty.
    ///
    /// # Errors
    /// [`Error::Layer`] for impossible layers, [`Error::OutOfMemory`].
    pub fn without_storage(layers: &[LayerSpec], params: &Params) -> Result<Hybrid, Error> {
        Hybrid::with_home(layers, params, Home::ELSEWHERE)
    }

    /// A memory with storage of its own that lists what operations change all the same.
    #[cfg(any(test, feature = "oracle"))]
    pub(crate) fn listing(layers: &[LayerSpec], params: &Params) -> Result<Hybrid, Error> {
        Hybrid::with_home(layers, params, Home { own: true, listed: true })
    }

    /// How many blocks and states there are, and which layers they belong to.
    pub fn storage_shape(&self) -> StorageShape {
        let cache = |(number, part): (usize, &alloc::boxed::Box<dyn super::Part>)| {
            let places = self.places.iter().zip(0..).filter(|(places, _)| !places.shared);
            let own = places.filter(|(places, _)| places.attention.is_some_and(|place| place.part == number));
            let layers = own.map(|(_, layer)| layer).collect();
            CacheShape { kind: part.kind(), layers, n_blocks: part.n_blocks() }
        };
        let with_cells = self.parts.iter().enumerate().filter(|(_, part)| part.kind() != Kind::Recurrent);
        let states = self.states_part();
        StorageShape {
            caches: with_cells.map(cache).collect(),
            n_states: states.map_or(0, |states| states.n_slots() as u32),
            n_rows: states.map_or(0, |_| self.timeline.n_rows()),
        }
    }

    /// Takes the changes that operations made to cells since this was last called, in the order in which they
    /// have to be made. Only a memory [without storage](Hybrid::without_storage) lists any.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let mut taken = Vec::new();
        for (part, cache) in self.parts.iter_mut().zip(0..) {
            let listed = part.listed().into_iter().flat_map(|listed| listed.drain(..));
            taken.extend(listed.map(|change| change.in_cache(cache)));
        }
        taken
    }

    /// Changes that nobody made yet would be lost behind those of a plan.
    pub(super) fn check_followed(&mut self) -> Result<(), Error> {
        let n_changes: usize = self.parts.iter_mut().filter_map(|part| part.listed()).map(|l| l.len()).sum();
        if n_changes == 0 { Ok(()) } else { Err(Error::Unfollowed { n_changes: n_changes as u64 }) }
    }

    /// The copies of cells before ubatch `number`.
    pub(crate) fn cell_copies(&self, number: u32) -> impl Iterator<Item = CellCopy> + '_ {
        self.parts.iter().zip(0..).flat_map(move |(part, cache)| {
            let own = copies(part.swaps()).filter(move |(ubatch, _)| *ubatch == number);
            own.map(move |(_, copy)| CellCopy { cache, ..copy })
        })
    }

    /// Runs of tokens that step states.
    pub(crate) fn runs(&self, runs: Range<usize>) -> &[StateRun] {
        self.parts.iter().find_map(|part| part.runs().get(runs.clone())).unwrap_or_default()
    }

    /// The copies that a plan makes.
    pub(crate) fn planned(&self) -> impl Iterator<Item = PlannedCopy> + '_ {
        self.schedule().ubatches().iter().zip(0..).flat_map(|(span, ubatch)| {
            let first = span.tokens.start as u32;
            let runs = self.runs(span.runs.clone()).iter();
            let states = runs.filter_map(move |run| run.counted_from(first).copy()).map(PlanCopy::State);
            let copies = self.cell_copies(ubatch).map(PlanCopy::Cells).chain(states);
            copies.map(move |copy| PlannedCopy { ubatch, copy })
        })
    }
}

impl Snapshot<'_> {
    /// Where what the image holds lies in the memory, for an engine that keeps the bytes.
    pub fn placement(&self) -> Placement {
        let found = |numbers: &[u32]| numbers.iter().map(|&number| Some(number)).collect();
        let rows = self.rows.iter().zip(&self.image.journals);
        Placement {
            caches: self.places.iter().map(|place| place.part as u32).collect(),
            blocks: self.blocks.iter().map(|blocks| found(blocks)).collect(),
            states: found(&self.slots),
            journals: rows.map(|(&first, &n)| Some(first..first + n)).collect(),
        }
    }
}
