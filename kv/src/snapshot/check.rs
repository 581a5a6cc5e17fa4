//! Checks of snapshots: every index is in range, sizes are possible, and cells are in order.
//!
//! A snapshot may come from a damaged or hostile file. What passes here can be imported without
//! further checks of its indices, so code that imports may rely on them.

use super::{Block, Cells, Checkpoint, Group, Sees, Sequence, Shape, Snapshot, State};
use crate::cache::table::{SPAN, bits};
use crate::error::Error;
use crate::ids::Pos;
use crate::reserve;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry};

/// Maximum number of rows of a journal, in snapshots as in [`Params`](crate::Params).
const MAX_ROWS: u32 = 1 << 16;

/// Maximum bytes of one layer's block and of one state tensor; far above any model.
const MAX_BYTES: u64 = 1 << 31;

/// Maximum number of groups; models have two or three kinds of windows.
const MAX_GROUPS: usize = 256;

/// Maximum number of entries of a block table; positions are below 2^31.
const MAX_ENTRIES: usize = 1 << 26;

/// Return an error for item `index` of the kind `what` unless `holds`.
fn ensure(holds: bool, what: &'static str, index: usize) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Snapshot { what, index: index as u64 }) }
}

impl Snapshot {
    /// Check that a memory could hold these sequences. A snapshot that passes can be imported into
    /// a memory of its shape without further checks of its indices. The bytes are not checked here:
    /// a [`Source`](super::Source) does that when it writes them.
    ///
    /// # Errors
    /// [`Error::Snapshot`] with the kind of the invalid item and its index: the number of the
    /// group, checkpoint or sequence.
    pub fn check(&self) -> Result<(), Error> {
        self.shape.check()?;
        ensure(self.blocks.len() == self.shape.groups.len(), "lists of blocks", self.blocks.len())?;
        for (i, blocks) in self.blocks.iter().enumerate() {
            ensure(blocks.iter().all(is_sound), "positions of blocks of group", i)?;
        }
        self.check_journals()?;
        // The number of the last table that named each block, 0 for none: a table that meets its
        // own number names a block twice.
        let met = self.blocks.iter().map(|blocks| reserve::filled(blocks.len(), 0));
        let mut met: Vec<Vec<u32>> = met.collect::<Result<_, _>>()?;
        for (i, checkpoint) in self.checkpoints.iter().enumerate() {
            self.check_checkpoint(i, checkpoint, &mut met)?;
        }
        let n_floors = self.checkpoints.iter().filter(|checkpoint| checkpoint.floor).count();
        ensure(n_floors <= self.sequences.len(), "rollback floors", n_floors)?;
        let mut places = reserve::filled(self.checkpoints.len(), None)?;
        for (i, sequence) in self.sequences.iter().enumerate() {
            self.check_sequence(i, sequence, &mut met)?;
            let is_sound = self.has_checkpoints(i, sequence, &mut places);
            ensure(is_sound, "checkpoint of sequence", i)?;
        }
        Ok(())
    }

    /// Return the position of the next token of a sequence; all layers end there.
    pub fn end_of(&self, sequence: &Sequence) -> Pos {
        let groups = self.shape.groups.iter().zip(&self.blocks).zip(&sequence.cells);
        let of_tokens = groups.filter(|((group, _), _)| group.sees != Sees::EncoderOutput);
        let last = of_tokens.filter_map(|((_, blocks), cells)| cells.last_pos(blocks)).max();
        last.max(sequence.state.map(|_| sequence.last)).map_or(Pos::ZERO, Pos::next)
    }

    fn is_recurrent(&self) -> bool {
        !self.shape.recurrent.is_empty()
    }

    /// Check that every journal belongs to exactly one checkpoint.
    fn check_journals(&self) -> Result<(), Error> {
        let mut owned = reserve::filled(self.journals.len(), false)?;
        for (i, checkpoint) in self.checkpoints.iter().enumerate() {
            let Some(journal) = checkpoint.journal else { continue };
            let slot = owned.get_mut(journal as usize).filter(|owned| !**owned);
            *slot.ok_or(Error::Snapshot { what: "journal of checkpoint", index: i as u64 })? = true;
        }
        for (i, (n_rows, is_owned)) in self.journals.iter().zip(owned).enumerate() {
            ensure(*n_rows <= MAX_ROWS, "rows of a journal", *n_rows as usize)?;
            ensure(is_owned, "journal that no checkpoint has", i)?;
        }
        ensure(self.journals.is_empty() || self.is_recurrent(), "journals without a state", 0)
    }

    /// Return true if a state is present if and only if layers are recurrent, and its index is
    /// valid.
    fn is_valid(&self, state: Option<State>) -> bool {
        let is_there = |state: State| {
            state.first >= Pos::ZERO && state.state.is_none_or(|number| number < self.n_states)
        };
        state.map_or(!self.is_recurrent(), |state| self.is_recurrent() && is_there(state))
    }

    /// Check that only windows keep cells of a checkpoint apart, and that these are in order.
    fn check_checkpoint(&self, i: usize, checkpoint: &Checkpoint, met: &mut [Vec<u32>]) -> Result<(), Error> {
        ensure(checkpoint.cells.len() == self.shape.groups.len(), "cells of checkpoint", i)?;
        ensure(self.is_valid(checkpoint.state), "state of checkpoint", i)?;
        for ((group, cells), met) in checkpoint.cells.iter().enumerate().zip(met) {
            let Some(cells) = cells else { continue };
            let has_window = matches!(self.shape.groups[group].sees, Sees::Window(_));
            let is_sound = cells.is_sound(&self.blocks[group], met, i);
            ensure(has_window && is_sound, "cells of checkpoint", i)?;
        }
        Ok(())
    }

    /// Check that all layers of a sequence end at the same position.
    fn check_sequence(&self, i: usize, sequence: &Sequence, met: &mut [Vec<u32>]) -> Result<(), Error> {
        ensure(sequence.cells.len() == self.shape.groups.len(), "cells of sequence", i)?;
        let mut ends = Vec::new();
        for ((group, cells), met) in sequence.cells.iter().enumerate().zip(met) {
            let sees = self.shape.groups[group].sees;
            let is_whole = cells.whole_from == Pos::ZERO && cells.start == Pos::ZERO;
            let is_sound = cells.is_sound(&self.blocks[group], met, self.checkpoints.len() + i);
            ensure(is_sound && (is_whole || matches!(sees, Sees::Window(_))), "cells of sequence", i)?;
            if sees != Sees::EncoderOutput {
                ends.push(cells.last_pos(&self.blocks[group]));
            }
        }
        if let Some(state) = sequence.state {
            let seen = state.state.is_some() && state.first <= sequence.last && sequence.last < Pos::MAX;
            ensure(seen && self.is_valid(sequence.state), "state of sequence", i)?;
        }
        if self.is_recurrent() {
            ends.push(sequence.state.map(|_| sequence.last));
        }
        ensure(ends.windows(2).all(|pair| pair[0] == pair[1]), "layers of sequence", i)
    }

    /// Return true if the checkpoints of sequence `i` ascend and end where it ends, journals
    /// included. `places` has the last sequence that named each checkpoint, and the position.
    fn has_checkpoints(&self, i: usize, sequence: &Sequence, places: &mut [Option<(usize, Pos)>]) -> bool {
        let (mut from, end) = (0, self.end_of(sequence).0);
        sequence.checkpoints.iter().all(|mark| {
            let named = mark.checkpoint as usize;
            let known = self.checkpoints.get(named).zip(places.get_mut(named));
            let Some((checkpoint, place)) = known else { return false };
            let before = place.replace((i, mark.pos));
            let is_new = before.is_none_or(|(other, pos)| other != i && pos == mark.pos);
            let n_rows = checkpoint.journal.map_or(0, |journal| self.journals[journal as usize]);
            let follows = mark.pos.0 >= from && mark.n_rows <= n_rows;
            from = i32::try_from(i64::from(mark.pos.0) + i64::from(mark.n_rows)).unwrap_or(i32::MAX);
            let reaches = |(cells, blocks): (&Option<Cells>, &Vec<Block>)| {
                let last = cells.as_ref().and_then(|cells| cells.last_pos(blocks));
                last.is_none_or(|last| last < mark.pos)
            };
            is_new
                && follows
                && from <= end
                && checkpoint.state.is_none_or(|state| state.first <= mark.pos)
                && checkpoint.cells.iter().zip(&self.blocks).all(reaches)
        })
    }
}

impl Shape {
    /// Check that sizes are possible and that groups and layers are distinct.
    pub(crate) fn check(&self) -> Result<(), Error> {
        ensure(self.groups.len() <= MAX_GROUPS, "number of groups", self.groups.len())?;
        for (i, group) in self.groups.iter().enumerate() {
            let is_known = |other: &Group| other.sees == group.sees;
            ensure(!self.groups[..i].iter().any(is_known), "group seen before", i)?;
            ensure(!group.layers.is_empty(), "layers of group", i)?;
            ensure(group.layers.windows(2).all(|pair| pair[0].layer < pair[1].layer), "layers of group", i)?;
            for layer in &group.layers {
                let width = (u64::from(layer.d_k) + u64::from(layer.d_v)).checked_mul(layer.n_head_kv.into());
                let bytes = width.and_then(|width| width.checked_mul(4 * BLOCK_CELLS as u64));
                ensure(bytes.is_some_and(|bytes| (1..=MAX_BYTES).contains(&bytes)), "sizes of group", i)?;
            }
        }
        let is_sane = |n: usize| n as u64 <= MAX_BYTES / 4;
        for (i, layer) in self.recurrent.iter().enumerate() {
            let sane = layer.parts.iter().all(|part| is_sane(part.len) && is_sane(part.input));
            ensure(sane && !layer.parts.is_empty(), "sizes of recurrent layer", i)?;
        }
        let ascends = self.recurrent.windows(2).all(|pair| pair[0].layer < pair[1].layer);
        ensure(ascends, "order of recurrent layers", 0)
    }
}

/// Return true if some cell of the block is in use, used cells have valid positions, and others
/// zero.
fn is_sound(block: &Block) -> bool {
    let is_used = |cell: u32| block.live >> cell & 1 == 1;
    block.live != 0
        && (0..).zip(&block.pos).all(|(cell, pos)| match is_used(cell) {
            true => (Pos::ZERO..Pos::MAX).contains(pos),
            false => *pos == Pos::ZERO,
        })
}

impl Cells {
    /// Return true if there are no cells.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Return the number of cells.
    pub fn len(&self) -> u32 {
        self.extents.iter().map(|extent| extent.live.count_ones()).sum()
    }

    /// Return position, block and index there of each cell, in order; `blocks` are those of the
    /// group.
    pub fn places<'a>(&'a self, blocks: &'a [Block]) -> impl Iterator<Item = (Pos, u32, u32)> + 'a {
        self.extents.iter().flat_map(move |extent| {
            let block = blocks.get(extent.block as usize);
            bits(extent.live).filter_map(move |cell| Some((block?.pos[cell as usize], extent.block, cell)))
        })
    }

    /// Return the positions of the cells, in order; `blocks` are those of the group.
    pub fn positions<'a>(&'a self, blocks: &'a [Block]) -> impl Iterator<Item = Pos> + 'a {
        self.places(blocks).map(|(pos, ..)| pos)
    }

    /// Return the position of the last cell.
    pub fn last_pos(&self, blocks: &[Block]) -> Option<Pos> {
        last_pos(self.extents.last()?, blocks)
    }

    /// Return true if blocks exist and are distinct, positions are sorted, and no span lacks all
    /// cells. `met` has the number of the last table that named each block; `table` is the one of
    /// this table, counted from 0.
    fn is_sound(&self, blocks: &[Block], met: &mut [u32], table: usize) -> bool {
        let table = (table + 1) as u32;
        let mut is_extent = |extent: &BlockEntry| {
            let number = extent.block as usize;
            match blocks.get(number).zip(met.get_mut(number)) {
                _ if extent.live == 0 => *extent == BlockEntry::EMPTY,
                Some((block, last)) => {
                    core::mem::replace(last, table) != table && extent.live & !block.live == 0
                }
                None => false,
            }
        };
        let is_dead = |extents: &[BlockEntry]| extents.iter().all(|extent| extent.live == 0);
        let has_cells = self.extents.iter().all(&mut is_extent)
            && !self.extents.chunks(SPAN).any(is_dead)
            && self.extents.last().is_none_or(|last| last.live != 0)
            && self.extents.len() <= MAX_ENTRIES
            && self.positions(blocks).is_sorted();
        let end = self.last_pos(blocks).map_or(0, |last| last.0 + 1);
        has_cells && [self.start, self.whole_from].iter().all(|pos| (0..=end).contains(&pos.0))
    }
}

/// Return the position of the last cell of an entry.
pub(super) fn last_pos(extent: &BlockEntry, blocks: &[Block]) -> Option<Pos> {
    let cell = extent.live.checked_ilog2()?;
    Some(blocks.get(extent.block as usize)?.pos[cell as usize])
}
