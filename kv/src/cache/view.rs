//! Views that compute reads and writes: the keys and values that the tokens of a ubatch see, the
//! cells in which they store theirs, and the recurrent states that they step.

use super::block::BlockPool;
use super::table::BlockTable;
use crate::error::Error;
use crate::external::StateCopy;
use crate::ids::{Pos, SeqId};
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, CellBlocks, CellBlocksMut, CellLayout};

/// Cell of a token: the place of its key and value in each layer of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Number of the block.
    pub block: u32,
    /// Number of the cell in its block, below 32.
    pub cell: u32,
}

/// Range of slots that a token sees, its own included.
///
/// Slot `s` is cell `s % 32` of entry `s / 32` of the block table. Slots in the range whose cell
/// was removed are not set in [`BlockEntry::live`], and compute skips them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visible {
    /// Sequence whose block table the slots index.
    pub seq: SeqId,
    /// First slot.
    pub lo: u32,
    /// Slot after the last.
    pub hi: u32,
}

/// Segment of a ubatch that steps one recurrent state, token by token.
///
/// A segment reads one slot and writes another, or goes on in the slot that it reads. Sequences
/// that hold equal states share a slot until their tokens differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateSegment {
    /// First token.
    pub start: u32,
    /// Token after the last.
    pub end: u32,
    /// Slot of the state before the first token; `None` for the state of an empty sequence, all
    /// zeros.
    pub read: Option<u32>,
    /// Slot for the state after the last token. If it is the slot that is read, it has no other
    /// user.
    pub write: u32,
    /// Journal row for the input of the first token; `None` if the tokens are not journaled.
    pub row: Option<u32>,
}

impl StateSegment {
    /// Return the copy with which this segment begins; `None` if it goes on in the slot that it
    /// reads.
    pub fn copy(&self) -> Option<StateCopy> {
        let StateSegment { start: token, read: from, write: to, .. } = *self;
        (from != Some(to)).then_some(StateCopy { from, to, token })
    }

    /// Return the segment with its tokens counted from `first`.
    pub(crate) fn counted_from(self, first: u32) -> StateSegment {
        StateSegment { start: self.start - first, end: self.end - first, ..self }
    }
}

/// Keys and values of one layer, as the tokens of a ubatch see them.
///
/// [`Ubatch::attention`](crate::Ubatch::attention) returns it. The tokens see their own keys and
/// values too, so an engine stores those of the ubatch first.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Attention<'u> {
    /// Layout of the bytes of a block.
    pub layout: CellLayout,
    /// Blocks of the layer, 64-byte aligned; none if they are stored elsewhere.
    pub blocks: CellBlocks<'u>,
    /// Block table of each sequence.
    pub(crate) tables: &'u [BlockTable],
    /// Slots that each token of the ubatch sees.
    pub(crate) visible: &'u [Visible],
    /// Block pool, for the positions of cells.
    pub(crate) pool: &'u BlockPool,
}

impl<'u> Attention<'u> {
    /// Return the slots that each token of the ubatch sees, in the ubatch's order.
    pub fn visible(&self) -> &'u [Visible] {
        self.visible
    }

    /// Return the block table that `visible` indexes by `slot / 32`.
    pub fn table(&self, visible: &Visible) -> &'u [BlockEntry] {
        self.tables.get(visible.seq.index()).map_or(&[], |table| table.extents())
    }

    /// Return the positions of the cells of a block. Entries of cells that no sequence holds are
    /// meaningless.
    pub fn positions(&self, block: u32) -> &'u [Pos; BLOCK_CELLS] {
        self.pool.pos(block)
    }
}

/// Cells in which the tokens of a ubatch store the keys and values of one layer.
#[non_exhaustive]
pub struct Store<'u> {
    /// Layout of the bytes of a block.
    pub layout: CellLayout,
    /// Blocks of the layer, 64-byte aligned; none if they are stored elsewhere.
    pub blocks: CellBlocksMut<'u>,
    /// Cell of each token, in the ubatch's order. All are different.
    pub cells: &'u [Cell],
}

impl Store<'_> {
    /// Store keys `[n_tokens, n_head_kv * d_k]` and values `[n_tokens, n_head_kv * d_v]` of the
    /// whole ubatch, rounded to nearest even.
    ///
    /// # Errors
    /// - [`Error::Shape`] if a slice has another length.
    /// - [`Error::NoStorage`] if the blocks are stored elsewhere.
    pub fn put(&mut self, k: &[f32], v: &[f32]) -> Result<(), Error> {
        let layout = self.layout;
        let (k_width, v_width) = (layout.n_head_kv * layout.d_k, layout.n_head_kv * layout.d_v);
        check_rows("keys of a ubatch", k, self.cells.len(), k_width)?;
        check_rows("values of a ubatch", v, self.cells.len(), v_width)?;
        for (i, cell) in self.cells.iter().enumerate() {
            let block = self.blocks.get_mut(cell.block).ok_or(Error::NoStorage)?;
            layout.store_k(block, cell.cell as usize, &k[i * k_width..(i + 1) * k_width]);
            layout.store_v(block, cell.cell as usize, &v[i * v_width..(i + 1) * v_width]);
        }
        Ok(())
    }
}

/// Check that `rows` is `[n_rows, width]`.
fn check_rows(what: &'static str, rows: &[f32], n_rows: usize, width: usize) -> Result<(), Error> {
    let wanted = n_rows * width;
    if rows.len() == wanted {
        return Ok(());
    }
    Err(Error::Shape { what, found: rows.len() as u64, wanted: wanted as u64 })
}

/// States of one state tensor of a layer, and the segments of a ubatch that step them.
///
/// For each segment, in order, compute calls [`States::carry`] and steps the returned state through
/// the tokens of the segment. It writes what enters the state to [`States::inputs`], or reads it
/// from there during a replay.
pub struct States<'u> {
    /// Elements of a state.
    pub len: usize,
    /// States, `[n_slots, len]`; empty if they are stored elsewhere.
    pub states: &'u mut [f32],
    /// Elements that enter a state with one token.
    pub(crate) input: usize,
    /// Journal, `[n_rows, input]`.
    pub(crate) journal: &'u mut [f32],
    /// Segments of the ubatch, tokens counted from the start of the plan.
    pub(crate) segments: &'u [StateSegment],
    /// First token of the ubatch, counted from the start of the plan.
    pub(crate) first: u32,
}

impl<'u> States<'u> {
    /// Bring the state that `segment` steps to the slot where it is written, and return it; empty
    /// if states are stored elsewhere.
    pub fn carry(&mut self, segment: &StateSegment) -> &mut [f32] {
        if self.states.is_empty() {
            return self.states;
        }
        let at = |slot: u32| slot as usize * self.len..(slot as usize + 1) * self.len;
        match segment.read {
            Some(slot) if slot != segment.write => self.states.copy_within(at(slot), at(segment.write).start),
            Some(_) => {}
            None => self.states[at(segment.write)].fill(0.0),
        }
        &mut self.states[at(segment.write)]
    }

    /// Return the journal rows of the tokens of `segment`, `[n_tokens, input]`; `None` if these
    /// tokens are not journaled.
    ///
    /// Compute writes them with a batch, and reads them when a rollback replays.
    pub fn inputs(&mut self, segment: &StateSegment) -> Option<&mut [f32]> {
        let (row, n_tokens) = (segment.row? as usize, (segment.end - segment.start) as usize);
        self.journal.get_mut(row * self.input..(row + n_tokens) * self.input)
    }

    /// Return the segments of the ubatch in order, tokens counted from the start of the ubatch.
    ///
    /// The segments tile the ubatch, and one may read the state that an earlier one wrote.
    pub fn segments(&self) -> impl Iterator<Item = StateSegment> + 'u {
        let (segments, first) = (self.segments, self.first);
        segments.iter().map(move |segment| segment.counted_from(first))
    }
}
