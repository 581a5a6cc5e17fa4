//! Taking an image of live sequences.

use super::Hybrid;
use super::cells::{CellPart, Holding};
use super::recurrent::Recurrent;
use crate::block::BlockPool;
use crate::error::Error;
use crate::extent::bits;
use crate::ids::{Pos, SeqId};
use crate::image::{
    Block, CellLayer, Cells, Checkpoint, Content, Group, Image, Mark, Sequence, Shape, State, StateLayer,
};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, Extent};

/// A group of layers and where a memory keeps it.
pub(super) struct Place {
    pub part: usize,
    /// The layers by their number within the part.
    pub locals: Vec<usize>,
    pub group: Group,
}

/// What sequences of a memory hold, while nothing changes it.
pub struct Snapshot<'a> {
    memory: &'a Hybrid,
    pub(super) image: Image,
    pub(super) places: Vec<Place>,
    /// For each group the block of its part that each block of the image is.
    pub(super) blocks: Vec<Vec<u32>>,
    /// The slot that each state is.
    pub(super) slots: Vec<u32>,
    /// The first row of each journal.
    pub(super) rows: Vec<u32>,
}

impl core::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").field("sequences", &self.image.sequences.len()).finish_non_exhaustive()
    }
}

/// Numbers for things in the order in which they are met.
struct Numbers {
    of: Vec<u32>,
    met: Vec<u32>,
}

impl Numbers {
    fn new(len: usize) -> Self {
        Numbers { of: vec![u32::MAX; len], met: Vec::new() }
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

/// The blocks of a group that an image has, while it is made.
struct Met {
    numbers: Numbers,
    blocks: Vec<Block>,
}

impl Met {
    fn new(pool: &BlockPool) -> Self {
        Met { numbers: Numbers::new(pool.len()), blocks: Vec::new() }
    }

    fn take(&mut self, holding: &Holding<'_>, pool: &BlockPool) -> Cells {
        let extents = holding.table.extents().iter().map(|extent| {
            if extent.live == 0 {
                return Extent::EMPTY;
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
            Extent { block: number, live: extent.live }
        });
        let extents: Vec<Extent> = extents.collect();
        if extents.is_empty() {
            // Nothing is missing where there was nothing.
            return Cells::default();
        }
        Cells { extents, whole_from: holding.whole_from, start: holding.start }
    }
}

impl Hybrid {
    /// What sequences of this memory keep, by layer.
    pub fn shape(&self) -> Shape {
        let groups = self.group_places().into_iter().map(|place| place.group).collect();
        let layers = self.places.iter().enumerate().filter(|(_, places)| places.recurrent.is_some());
        let parts = self.states_part().into_iter().flat_map(Recurrent::shape);
        let recurrent =
            layers.zip(parts).map(|((layer, _), parts)| StateLayer { layer: layer as u32, parts });
        Shape { groups, recurrent: recurrent.collect() }
    }

    /// The groups of layers, in the order of their first layers.
    pub(super) fn group_places(&self) -> Vec<Place> {
        let mut found: Vec<(usize, usize, Place)> = Vec::new();
        for (layer, places) in self.places.iter().enumerate() {
            let Some(place) = places.attention.filter(|_| !places.shared) else { continue };
            let Some(cells) = self.parts.get(place.part).and_then(|part| part.as_cells()) else { continue };
            let Some(own) = cells.layers().get(place.layer) else { continue };
            let Some(sees) = cells.sees(own.view) else { continue };
            let (layout, key) = (own.layout, (place.part, own.view));
            let known = found.iter().position(|(part, view, _)| (*part, *view) == key);
            let number = known.unwrap_or_else(|| {
                let group = Group { sees, k_type: layout.k_type, v_type: layout.v_type, layers: Vec::new() };
                found.push((key.0, key.1, Place { part: place.part, locals: Vec::new(), group }));
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

    pub(super) fn cell_part(&self, part: usize) -> Option<&dyn CellPart> {
        self.parts.get(part)?.as_cells()
    }

    pub(super) fn states_part(&self) -> Option<&Recurrent> {
        self.parts.iter().find_map(|part| part.as_states())
    }

    /// What `seqs` hold, each with its way back. What they share is in the image once.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn snapshot(&self, seqs: &[SeqId]) -> Result<Snapshot<'_>, Error> {
        seqs.iter().try_for_each(|seq| self.check_seq(*seq))?;
        let places = self.group_places();
        let mut taken = Taken::new(self, &places);
        let sequences = seqs.iter().map(|seq| taken.sequence(*seq)).collect();
        taken.checkpoints();
        let image = Image {
            shape: self.shape(),
            blocks: taken.met.iter_mut().map(|met| core::mem::take(&mut met.blocks)).collect(),
            n_states: taken.slots.met.len() as u32,
            journals: taken.journals,
            checkpoints: taken.made,
            sequences,
        };
        debug_assert!(self.open || image.check() == Ok(()), "{:?}", image.check());
        let blocks = taken.met.into_iter().map(|met| met.numbers.met).collect();
        Ok(Snapshot { memory: self, image, blocks, slots: taken.slots.met, rows: taken.rows, places })
    }
}

impl<'a> Snapshot<'a> {
    /// The bytes of a block of the image for as long as the memory does not change.
    fn layers_of(&self, group: usize, block: usize) -> Option<Vec<&'a [u8]>> {
        let place = self.places.get(group)?;
        let number = *self.blocks.get(group)?.get(block)? as usize;
        let part = self.memory.cell_part(place.part)?;
        let layers = place.locals.iter().filter_map(|&local| part.layers().get(local));
        layers.map(|layer| layer.storage().get(layer.layout.block_range(number))).collect()
    }

    /// The bytes of entry `number` of what a sequence of the image has of a group, layer by layer, if all of its cells are the
    /// sequence's and stand at `pos` and the positions after it.
    pub fn full_block(
        &self,
        sequence: usize,
        group: usize,
        number: usize,
        pos: Pos,
    ) -> Option<Vec<&'a [u8]>> {
        let extent = self.image.sequences.get(sequence)?.cells.get(group)?.extents.get(number)?;
        let block = self.image.blocks.get(group)?.get(extent.block as usize)?;
        let is_there = |(cell, own): (i32, &Pos)| own.0 == pos.0.saturating_add(cell);
        let is_full = extent.live == u32::MAX && (0..).zip(&block.pos).all(is_there);
        is_full.then(|| self.layers_of(group, extent.block as usize))?
    }
}

/// An image in the making.
struct Taken<'a> {
    memory: &'a Hybrid,
    parts: Vec<&'a dyn CellPart>,
    met: Vec<Met>,
    slots: Numbers,
    checkpoints: Numbers,
    /// For each checkpoint met, how many rows somebody uses.
    n_rows: Vec<u32>,
    made: Vec<Checkpoint>,
    journals: Vec<u32>,
    rows: Vec<u32>,
}

impl<'a> Taken<'a> {
    fn new(memory: &'a Hybrid, places: &[Place]) -> Self {
        let parts: Vec<_> = places.iter().filter_map(|place| memory.cell_part(place.part)).collect();
        Taken {
            memory,
            met: parts.iter().map(|part| Met::new(part.pool())).collect(),
            parts,
            slots: Numbers::new(memory.states_part().map_or(0, Recurrent::n_slots)),
            checkpoints: Numbers::new(memory.timeline.len()),
            n_rows: Vec::new(),
            made: Vec::new(),
            journals: Vec::new(),
            rows: Vec::new(),
        }
    }

    fn sequence(&mut self, seq: SeqId) -> Sequence {
        let cells = self.parts.iter().zip(&mut self.met);
        let cells = cells.map(|(part, met)| met.take(&part.held_by(seq), part.pool())).collect();
        let tip = self.memory.states_part().and_then(|states| states.tip(seq));
        let state = tip.map(|tip| State { state: Some(self.slots.number(tip.slot)), first: tip.first });
        let line = self.memory.timeline.line(seq).iter().map(|entry| {
            let checkpoint = self.checkpoints.number(entry.id);
            if checkpoint as usize == self.n_rows.len() {
                self.n_rows.push(0);
            }
            let n_rows = &mut self.n_rows[checkpoint as usize];
            *n_rows = entry.n_rows.max(*n_rows);
            Mark { checkpoint, pos: entry.pos, n_rows: entry.n_rows }
        });
        Sequence { cells, state, last: tip.map_or(Pos::ZERO, |tip| tip.last), line: line.collect() }
    }

    fn checkpoints(&mut self) {
        for (number, &id) in self.checkpoints.met.iter().enumerate() {
            let held = self.memory.states_part().map(|states| states.held_for(id));
            let state = held.map(|held| State {
                state: held.and_then(|held| held.slot).map(|slot| self.slots.number(slot)),
                first: held.map_or(Pos::ZERO, |held| held.first),
            });
            let cells = self
                .parts
                .iter()
                .zip(&mut self.met)
                .map(|(part, met)| part.held_for(id).map(|holding| met.take(&holding, part.pool())));
            let cells = cells.collect();
            let timeline = &self.memory.timeline;
            let first_row = timeline.first_row(id).filter(|_| self.n_rows[number] > 0);
            let journal = first_row.map(|row| {
                self.rows.push(row);
                self.journals.push(self.n_rows[number]);
                self.journals.len() as u32 - 1
            });
            let (pinned, anchor) = timeline.stays_as(id);
            self.made.push(Checkpoint { pinned, anchor, journal, cells, state });
        }
    }
}

impl Content for Snapshot<'_> {
    fn image(&self) -> &Image {
        &self.image
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        self.layers_of(group, block).unwrap_or_default()
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        let (Some(&slot), Some(states)) = (self.slots.get(state), self.memory.states_part()) else {
            return Vec::new();
        };
        states.pieces(slot).collect()
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        let rows = self.rows.get(journal).zip(self.image.journals.get(journal));
        let (Some((&first, &n)), Some(states)) = (rows, self.memory.states_part()) else { return Vec::new() };
        states.rows(first..first + n).collect()
    }
}
