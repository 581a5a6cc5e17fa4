//! The window of a cache, and the cells that its checkpoints retain.

use super::table::{BlockTable, SPAN, tables};
use crate::error::Error;
use crate::ids::Pos;
use crate::layer::Window;
use crate::params::Params;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;

/// Bookkeeping of a windowed cache: its window, and the cells of each checkpoint.
///
/// A checkpoint shares the blocks of the sequence that it was made of; it copies nothing, and its
/// blocks stay when the sequence releases them.
pub(crate) struct WindowCells {
    /// Window of the layers.
    pub window: Window,
    /// Number of cells older than the window that stay at least.
    pub margin: u32,
    /// Cells of each checkpoint, complete from `whole_from` on.
    pub held: Vec<BlockTable>,
    /// Entries for which each table of a checkpoint has room from the start.
    pub held_room: usize,
}

impl WindowCells {
    /// Make the bookkeeping of checkpoints that hold nothing.
    pub fn new(window: Window, params: &Params, n_checkpoints: u32) -> Result<WindowCells, Error> {
        let n_cells = window.size().saturating_add(params.rollback.margin) as usize;
        let held_room = n_cells.div_ceil(BLOCK_CELLS).min(1 << 16) + 2 + SPAN;
        let held = tables(n_checkpoints, held_room)?;
        Ok(WindowCells { window, margin: params.rollback.margin, held, held_room })
    }

    /// Return the most cells of one sequence, with a batch of `n_batch` tokens on top.
    pub fn n_cells(window: Window, params: &Params) -> u32 {
        let kept = window.size().saturating_add(params.rollback.margin);
        kept.saturating_add(params.n_batch).saturating_add(2 * BLOCK_CELLS as u32)
    }

    /// Return the first position that a sequence which ends at `end` retains: what it needs there,
    /// and after rolling back by the margin. Of a chunked window that can be the chunk before.
    pub fn kept_from(&self, end: Pos) -> Pos {
        self.window.needed_from(end - self.margin)
    }
}
