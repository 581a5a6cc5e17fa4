//! Export: a snapshot of live sequences.
//!
//! An [`Export`] borrows the memory, so nothing changes while it is read or saved. It copies tables
//! and positions, not cells or states: their bytes are read in place.

use crate::cache::table::BlockTable;
use crate::cache::{PagedCells, RecurrentCache};
use crate::error::Error;
use crate::external::Placement;
use crate::ids::{Pos, SeqId};
use crate::memory::Memory;
use crate::snapshot::{
    Block, CellLayer, Cells, Checkpoint, CheckpointRef, Content, Group, Sequence, Shape, Snapshot, State,
    StateLayer,
};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BlockEntry;
use core::ops::Range;

/// A group of layers and the cache of the memory that holds it.
pub(super) struct Place {
    pub cache: usize,
    /// Indices of the layers in the cache.
    pub locals: Vec<usize>,
    pub group: Group,
}

/// A snapshot of some sequences of a memory, whose bytes are read in place.
///
/// [`Memory::export`] makes it; the memory cannot change while it exists.
/// [`Owned::copy`](crate::snapshot::Owned::copy) makes it independent of the memory, and
/// [`storage`](crate::storage) saves it.
pub struct Export<'a> {
    memory: &'a Memory,
    snapshot: Snapshot,
    places: Vec<Place>,
    placement: Placement,
}

impl core::fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Export").field("sequences", &self.snapshot.sequences.len()).finish_non_exhaustive()
    }
}

/// Consecutive numbers for sparse ids, in the order of their first occurrence.
struct Renumbering {
    of: Vec<u32>,
    met: Vec<u32>,
}

impl Renumbering {
    fn new(len: usize) -> Self {
        Renumbering { of: vec![u32::MAX; len], met: Vec::new() }
    }

    fn number(&mut self, thing: u32) -> u32 {
        let number = &mut self.of[thing as usize];
        if *number == u32::MAX {
            *number = self.met.len() as u32;
            self.met.push(thing);
        }
        *number
    }
}

impl Memory {
    /// Return the layers of this memory, grouped by what they see.
    pub fn shape(&self) -> Shape {
        let groups = self.group_places().into_iter().map(|place| place.group).collect();
        let layers = self.caches.layers.iter().enumerate().filter(|(_, layer)| layer.recurrent.is_some());
        let parts = self.caches.states.iter().flat_map(RecurrentCache::shape);
        let recurrent =
            layers.zip(parts).map(|((layer, _), parts)| StateLayer { layer: layer as u32, parts });
        Shape { groups, recurrent: recurrent.collect() }
    }

    /// Return the groups of layers, in the order of their first layers, with the cache of each.
    pub(super) fn group_places(&self) -> Vec<Place> {
        let mut found: Vec<Place> = Vec::new();
        for (layer, places) in self.caches.layers.iter().enumerate() {
            let Some(place) = places.attention.filter(|_| !places.is_shared) else { continue };
            let Some(cells) = self.caches.cells(place.cache) else { continue };
            let own = &cells.layers[place.layer];
            let (layout, sees) = (own.layout, cells.sees(own));
            let number = found.iter().position(|known| known.group.sees == sees).unwrap_or_else(|| {
                let group = Group { sees, k_type: layout.k_type, v_type: layout.v_type, layers: Vec::new() };
                found.push(Place { cache: place.cache, locals: Vec::new(), group });
                found.len() - 1
            });
            found[number].locals.push(place.layer);
            found[number].group.layers.push(CellLayer {
                layer: layer as u32,
                n_head_kv: layout.n_head_kv as u32,
                d_k: layout.d_k as u32,
                d_v: layout.d_v as u32,
            });
        }
        found
    }

    /// Return a snapshot of `seqs` with their checkpoints. Blocks and states that sequences share
    /// are in it once.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn export(&self, seqs: &[SeqId]) -> Result<Export<'_>, Error> {
        seqs.iter().try_for_each(|seq| self.check_seq(*seq))?;
        let places = self.group_places();
        let caches = places.iter().filter_map(|place| self.caches.cells(place.cache));
        let caches: Vec<&PagedCells> = caches.collect();
        let blocks = vec![Vec::new(); caches.len()];
        let mut builder = SnapshotBuilder {
            memory: self,
            blocks: caches.iter().map(|cache| Renumbering::new(cache.pool.len())).collect(),
            caches,
            snapshot: Snapshot { shape: self.shape(), blocks, ..Snapshot::default() },
            slots: Renumbering::new(self.caches.states.as_ref().map_or(0, |states| states.slots.len())),
            checkpoints: Renumbering::new(self.checkpoints.sizes.n_checkpoints as usize),
            journals: Vec::new(),
        };
        seqs.iter().for_each(|seq| builder.add_sequence(*seq));
        builder.add_checkpoints();
        let SnapshotBuilder { mut snapshot, blocks, slots, journals, .. } = builder;
        snapshot.n_states = slots.met.len() as u32;
        debug_assert!(self.open || snapshot.check() == Ok(()), "{:?}", snapshot.check());
        let found = |numbers: Renumbering| numbers.met.into_iter().map(Some).collect();
        let caches = places.iter().map(|place| place.cache as u32).collect();
        let blocks = blocks.into_iter().map(found).collect();
        let placement = Placement { caches, blocks, states: found(slots), journals };
        Ok(Export { memory: self, snapshot, places, placement })
    }
}

impl<'a> Export<'a> {
    /// Return the blocks, slots and rows of the memory that the snapshot refers to, for an engine
    /// that stores the bytes.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Return the bytes of a block of the snapshot, layer by layer.
    fn layers_of(&self, group: usize, block: usize) -> Option<Vec<&'a [u8]>> {
        let place = self.places.get(group)?;
        let number = (*self.placement.blocks.get(group)?.get(block)?)?;
        let cells = self.memory.caches.cells(place.cache)?;
        let layers = place.locals.iter().filter_map(|&local| cells.layers.get(local));
        layers.map(|layer| cells.bytes.of(layer).get(number)).collect()
    }

    /// Return the bytes of entry `number` of a sequence's block table, layer by layer, if all of
    /// its cells belong to the sequence and have the positions from `pos` on. A prompt cache stores
    /// such blocks.
    pub fn full_block(
        &self,
        sequence: usize,
        group: usize,
        number: usize,
        pos: Pos,
    ) -> Option<Vec<&'a [u8]>> {
        let extent = self.snapshot.sequences.get(sequence)?.cells.get(group)?.extents.get(number)?;
        let block = self.snapshot.blocks.get(group)?.get(extent.block as usize)?;
        let is_there = |(cell, own): (i32, &Pos)| own.0 == pos.0.saturating_add(cell);
        let is_full = extent.live == u32::MAX && (0..).zip(&block.pos).all(is_there);
        is_full.then(|| self.layers_of(group, extent.block as usize))?
    }
}

/// A snapshot under construction: the numbers given to blocks, states and checkpoints so far.
struct SnapshotBuilder<'a> {
    memory: &'a Memory,
    /// Cache of each group.
    caches: Vec<&'a PagedCells>,
    snapshot: Snapshot,
    /// Blocks of each group.
    blocks: Vec<Renumbering>,
    slots: Renumbering,
    checkpoints: Renumbering,
    /// Rows of each journal.
    journals: Vec<Option<Range<u32>>>,
}

impl SnapshotBuilder<'_> {
    /// Return a block table of `group` in terms of the snapshot's blocks.
    fn cells(&mut self, group: usize, table: &BlockTable) -> Cells {
        let (pool, list) = (&self.caches[group].pool, &mut self.snapshot.blocks[group]);
        let extents = table.extents().iter().map(|extent| {
            if extent.live == 0 {
                return BlockEntry::EMPTY;
            }
            let number = self.blocks[group].number(extent.block);
            list.resize(list.len().max(number as usize + 1), Block::default());
            list[number as usize].add(extent.live, pool.pos(extent.block));
            BlockEntry { block: number, live: extent.live }
        });
        let extents: Vec<BlockEntry> = extents.collect();
        if extents.is_empty() {
            // An empty table misses nothing.
            return Cells::default();
        }
        Cells { extents, whole_from: table.gone.whole_from, start: table.gone.start }
    }

    /// Add a sequence: its block tables, current state and list of checkpoints.
    fn add_sequence(&mut self, seq: SeqId) {
        let mut sequence = Sequence::default();
        for group in 0..self.caches.len() {
            let table = self.caches[group].table(seq);
            sequence.cells.push(self.cells(group, table));
        }
        if let Some(current) = self.memory.caches.states.as_ref().and_then(|states| states.current(seq)) {
            let state = Some(self.slots.number(current.slot));
            sequence.state = Some(State { state, first: current.first });
            sequence.last = current.last;
        }
        let list = self.memory.checkpoints.list(seq).iter().map(|entry| {
            let checkpoint = self.checkpoints.number(entry.id);
            CheckpointRef { checkpoint, pos: entry.pos, n_rows: entry.n_rows }
        });
        sequence.checkpoints = list.collect();
        self.snapshot.sequences.push(sequence);
    }

    /// Add all checkpoints that sequences refer to, once the lists are complete.
    fn add_checkpoints(&mut self) {
        let mut n_rows = vec![0; self.checkpoints.met.len()];
        for mark in self.snapshot.sequences.iter().flat_map(|sequence| &sequence.checkpoints) {
            let most = &mut n_rows[mark.checkpoint as usize];
            *most = mark.n_rows.max(*most);
        }
        let checkpoints = &self.memory.checkpoints;
        for (id, n_rows) in core::mem::take(&mut self.checkpoints.met).into_iter().zip(n_rows) {
            let live = checkpoints.get(id);
            let mut checkpoint =
                Checkpoint { pinned: live.pinned, floor: live.floor, ..Checkpoint::default() };
            if let Some(held) = self.memory.caches.states.as_ref().map(|states| states.held_for(id)) {
                let state = held.and_then(|held| held.slot).map(|slot| self.slots.number(slot));
                checkpoint.state = Some(State { state, first: held.map_or(Pos::ZERO, |held| held.first) });
            }
            for group in 0..self.caches.len() {
                let table = self.caches[group].held_for(id);
                checkpoint.cells.push(table.map(|table| self.cells(group, table)));
            }
            if let Some(row) = checkpoints.first_row(id).filter(|_| n_rows > 0) {
                checkpoint.journal = Some(self.journals.len() as u32);
                self.journals.push(Some(row..row + n_rows));
                self.snapshot.journals.push(n_rows);
            }
            self.snapshot.checkpoints.push(checkpoint);
        }
        // Only the last floor of a sequence is one for those that import it alone.
        let Snapshot { sequences, checkpoints, .. } = &mut self.snapshot;
        let is_floor = |mark: &&CheckpointRef| checkpoints[mark.checkpoint as usize].floor;
        let last = sequences.iter().filter_map(|sequence| sequence.checkpoints.iter().rfind(is_floor));
        let last: Vec<u32> = last.map(|mark| mark.checkpoint).collect();
        (0..).zip(checkpoints).for_each(|(number, checkpoint)| checkpoint.floor &= last.contains(&number));
    }
}

impl Content for Export<'_> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        self.layers_of(group, block).unwrap_or_default()
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        let slot = self.placement.states.get(state).copied().flatten();
        let states = self.memory.caches.states.as_ref().zip(slot);
        states.map_or_else(Vec::new, |(states, slot)| states.tensors(slot).collect())
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        let rows = self.placement.journals.get(journal).cloned().flatten();
        let states = self.memory.caches.states.as_ref().zip(rows);
        states.map_or_else(Vec::new, |(states, rows)| states.rows(rows).collect())
    }
}
