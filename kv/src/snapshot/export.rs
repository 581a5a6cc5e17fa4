//! Export: a snapshot of live sequences.
//!
//! An [`Export`] borrows the memory, so nothing changes while it is read or saved. It copies tables
//! and positions, not cells or states: their bytes are read in place.

use crate::cache::block::BlockPool;
use crate::cache::table::bits;
use crate::cache::{CellCache, Holding, RecurrentCache};
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
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry};

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
    pub(super) snapshot: Snapshot,
    pub(super) places: Vec<Place>,
    /// Block of the cache that each block of the snapshot is, per group.
    pub(super) blocks: Vec<Vec<u32>>,
    /// State slot of each state.
    pub(super) slots: Vec<u32>,
    /// First row of each journal.
    pub(super) rows: Vec<u32>,
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
        let Some(number) = self.of.get_mut(thing as usize) else { return u32::MAX };
        if *number == u32::MAX {
            *number = self.met.len() as u32;
            self.met.push(thing);
        }
        *number
    }
}

/// The blocks of one group that the snapshot has so far.
struct ExportedBlocks {
    numbers: Renumbering,
    blocks: Vec<Block>,
}

impl ExportedBlocks {
    fn new(pool: &BlockPool) -> Self {
        ExportedBlocks { numbers: Renumbering::new(pool.len()), blocks: Vec::new() }
    }

    fn take(&mut self, holding: &Holding<'_>, pool: &BlockPool) -> Cells {
        let extents = holding.table.extents().iter().map(|extent| {
            if extent.live == 0 {
                return BlockEntry::EMPTY;
            }
            let number = self.numbers.number(extent.block);
            if number as usize == self.blocks.len() {
                self.blocks.push(Block { live: 0, pos: [Pos::ZERO; BLOCK_CELLS] });
            }
            if let Some(block) = self.blocks.get_mut(number as usize) {
                let pos = pool.pos(extent.block);
                block.live |= extent.live;
                bits(extent.live).for_each(|cell| block.pos[cell as usize] = pos[cell as usize]);
            }
            BlockEntry { block: number, live: extent.live }
        });
        let extents: Vec<BlockEntry> = extents.collect();
        if extents.is_empty() {
            // An empty table misses nothing.
            return Cells::default();
        }
        Cells { extents, whole_from: holding.whole_from, start: holding.start }
    }
}

impl Memory {
    /// Return the layers of this memory, grouped by what they see.
    pub fn shape(&self) -> Shape {
        let groups = self.group_places().into_iter().map(|place| place.group).collect();
        let layers = self.caches.layers().iter().enumerate().filter(|(_, layer)| layer.recurrent.is_some());
        let parts = self.caches.states().into_iter().flat_map(RecurrentCache::shape);
        let recurrent =
            layers.zip(parts).map(|((layer, _), parts)| StateLayer { layer: layer as u32, parts });
        Shape { groups, recurrent: recurrent.collect() }
    }

    /// Return the groups of layers, in the order of their first layers, with the cache of each.
    pub(super) fn group_places(&self) -> Vec<Place> {
        let mut found: Vec<(usize, usize, Place)> = Vec::new();
        for (layer, places) in self.caches.layers().iter().enumerate() {
            let Some(place) = places.attention.filter(|_| !places.is_shared) else { continue };
            let Some(cache) = self.caches.cell_cache(place.cache) else { continue };
            let Some(own) = cache.cells.layers.get(place.layer) else { continue };
            let Some(sees) = cache.sees(own.view) else { continue };
            let (layout, key) = (own.layout, (place.cache, own.view));
            let known = found.iter().position(|(cache, view, _)| (*cache, *view) == key);
            let number = known.unwrap_or_else(|| {
                let group = Group { sees, k_type: layout.k_type, v_type: layout.v_type, layers: Vec::new() };
                found.push((key.0, key.1, Place { cache: place.cache, locals: Vec::new(), group }));
                found.len() - 1
            });
            let group = &mut found[number].2;
            group.locals.push(place.layer);
            group.group.layers.push(CellLayer {
                layer: layer as u32,
                n_head_kv: layout.n_head_kv as u32,
                d_k: layout.d_k as u32,
                d_v: layout.d_v as u32,
            });
        }
        found.into_iter().map(|(.., place)| place).collect()
    }

    /// Return a snapshot of `seqs` with their checkpoints. Blocks and states that sequences share
    /// are in it once.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn export(&self, seqs: &[SeqId]) -> Result<Export<'_>, Error> {
        seqs.iter().try_for_each(|seq| self.check_seq(*seq))?;
        let places = self.group_places();
        let mut taken = SnapshotBuilder::new(self, &places);
        let sequences = seqs.iter().map(|seq| taken.sequence(*seq)).collect();
        taken.checkpoints();
        let snapshot = Snapshot {
            shape: self.shape(),
            blocks: taken.met.iter_mut().map(|met| core::mem::take(&mut met.blocks)).collect(),
            n_states: taken.slots.met.len() as u32,
            journals: taken.journals,
            checkpoints: taken.made,
            sequences,
        };
        debug_assert!(self.open || snapshot.check() == Ok(()), "{:?}", snapshot.check());
        let blocks = taken.met.into_iter().map(|met| met.numbers.met).collect();
        Ok(Export { memory: self, snapshot, blocks, slots: taken.slots.met, rows: taken.rows, places })
    }
}

impl<'a> Export<'a> {
    /// Return the bytes of a block of the snapshot, layer by layer.
    fn layers_of(&self, group: usize, block: usize) -> Option<Vec<&'a [u8]>> {
        let place = self.places.get(group)?;
        let number = *self.blocks.get(group)?.get(block)? as usize;
        let cache = self.memory.caches.cell_cache(place.cache)?;
        let layers = place.locals.iter().filter_map(|&local| cache.cells.layers.get(local));
        layers.map(|layer| layer.storage().get(layer.layout.block_range(number))).collect()
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
    caches: Vec<CellCache<'a>>,
    met: Vec<ExportedBlocks>,
    slots: Renumbering,
    checkpoints: Renumbering,
    /// Number of journal rows in use, per checkpoint.
    n_rows: Vec<u32>,
    made: Vec<Checkpoint>,
    journals: Vec<u32>,
    rows: Vec<u32>,
}

impl<'a> SnapshotBuilder<'a> {
    fn new(memory: &'a Memory, places: &[Place]) -> Self {
        let caches = places.iter().filter_map(|place| memory.caches.cell_cache(place.cache));
        let caches: Vec<CellCache<'_>> = caches.collect();
        SnapshotBuilder {
            memory,
            met: caches.iter().map(|cache| ExportedBlocks::new(&cache.cells.pool)).collect(),
            caches,
            slots: Renumbering::new(memory.caches.states().map_or(0, RecurrentCache::n_slots)),
            checkpoints: Renumbering::new(memory.checkpoints.len()),
            n_rows: Vec::new(),
            made: Vec::new(),
            journals: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Add a sequence: its block tables, current state and list of checkpoints.
    fn sequence(&mut self, seq: SeqId) -> Sequence {
        let cells = self.caches.iter().zip(&mut self.met);
        let cells = cells.map(|(cache, met)| met.take(&cache.held_by(seq), &cache.cells.pool)).collect();
        let current_state = self.memory.caches.states().and_then(|states| states.current(seq));
        let state = current_state.map(|current_state| State {
            state: Some(self.slots.number(current_state.slot)),
            first: current_state.first,
        });
        let list = self.memory.checkpoints.list(seq).iter().map(|entry| {
            let checkpoint = self.checkpoints.number(entry.id);
            if checkpoint as usize == self.n_rows.len() {
                self.n_rows.push(0);
            }
            let n_rows = &mut self.n_rows[checkpoint as usize];
            *n_rows = entry.n_rows.max(*n_rows);
            CheckpointRef { checkpoint, pos: entry.pos, n_rows: entry.n_rows }
        });
        Sequence {
            cells,
            state,
            last: current_state.map_or(Pos::ZERO, |current_state| current_state.last),
            checkpoints: list.collect(),
        }
    }

    /// Add all checkpoints that sequences refer to, once the lists are complete.
    fn checkpoints(&mut self) {
        for (number, &id) in self.checkpoints.met.iter().enumerate() {
            let held = self.memory.caches.states().map(|states| states.held_for(id));
            let state = held.map(|held| State {
                state: held.and_then(|held| held.slot).map(|slot| self.slots.number(slot)),
                first: held.map_or(Pos::ZERO, |held| held.first),
            });
            let cells =
                self.caches.iter().zip(&mut self.met).map(|(cache, met)| {
                    cache.held_for(id).map(|holding| met.take(&holding, &cache.cells.pool))
                });
            let cells = cells.collect();
            let checkpoints = &self.memory.checkpoints;
            let first_row = checkpoints.first_row(id).filter(|_| self.n_rows[number] > 0);
            let journal = first_row.map(|row| {
                self.rows.push(row);
                self.journals.push(self.n_rows[number]);
                self.journals.len() as u32 - 1
            });
            let (pinned, floor) = checkpoints.stays_as(id);
            self.made.push(Checkpoint { pinned, floor, journal, cells, state });
        }
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
        let (Some(&slot), Some(states)) = (self.slots.get(state), self.memory.caches.states()) else {
            return Vec::new();
        };
        states.tensors(slot).collect()
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        let rows = self.rows.get(journal).zip(self.snapshot.journals.get(journal));
        let (Some((&first, &n)), Some(states)) = (rows, self.memory.caches.states()) else {
            return Vec::new();
        };
        states.rows(first..first + n).collect()
    }
}

impl Export<'_> {
    /// Return the blocks, slots and rows of the memory that the snapshot refers to, for an engine
    /// that stores the bytes.
    pub fn placement(&self) -> Placement {
        let found = |numbers: &[u32]| numbers.iter().map(|&number| Some(number)).collect();
        let rows = self.rows.iter().zip(&self.snapshot.journals);
        Placement {
            caches: self.places.iter().map(|place| place.cache as u32).collect(),
            blocks: self.blocks.iter().map(|blocks| found(blocks)).collect(),
            states: found(&self.slots),
            journals: rows.map(|(&first, &n)| Some(first..first + n)).collect(),
        }
    }
}
