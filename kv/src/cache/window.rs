//! The window of a cache, and the cells that its checkpoints retain.

use super::block::BlockPool;
use super::charges::{Charge, Charges};
use super::table::{BlockTable, SPAN, tables};
use crate::error::Error;
use crate::ids::Pos;
use crate::layer::Window;
use crate::params::{Params, Sizes};
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
    /// Blocks of paid checkpoints and of pins, each counted once.
    pub charges: [Charges; 2],
    /// Most blocks of paid checkpoints, and most blocks of pins.
    pub most_charged: u32,
}

impl WindowCells {
    /// Make the bookkeeping of checkpoints that hold nothing, for a cache of `n_blocks` blocks.
    pub fn new(window: Window, params: &Params, sizes: &Sizes, n_blocks: u32) -> Result<WindowCells, Error> {
        let n_cells = window.size().saturating_add(params.rollback.margin) as usize;
        let held_room = n_cells.div_ceil(BLOCK_CELLS).min(1 << 16) + 2 + SPAN;
        let n_checkpoints = sizes.n_checkpoints;
        let charges = || Charges::new(n_blocks, n_checkpoints);
        Ok(WindowCells {
            window,
            margin: params.rollback.margin,
            held: tables(n_checkpoints, held_room)?,
            held_room,
            charges: [charges()?, charges()?],
            most_charged: params.paid_blocks(window, sizes).min(n_blocks.into()) as u32,
        })
    }

    /// Charge the blocks of a checkpoint, or charge them no longer.
    pub fn charge(&mut self, checkpoint: u32, charge: Charge, is_charged: bool) {
        if let Some(table) = self.held.get(checkpoint as usize) {
            self.charges[charge as usize].set(checkpoint, table, is_charged);
        }
    }

    /// Return true if more blocks are charged than the budget pays for.
    pub fn exceeds(&self, charge: Charge) -> bool {
        self.charges[charge as usize].n_blocks() > self.most_charged
    }

    /// Change the table of a checkpoint; its charges follow.
    pub fn change_held(&mut self, checkpoint: u32, change: impl FnOnce(&mut BlockTable)) {
        let Some(table) = self.held.get_mut(checkpoint as usize) else { return };
        let charged = self.charges.each_mut().map(|charges| charges.set(checkpoint, table, false));
        change(table);
        for (charges, was_charged) in self.charges.iter_mut().zip(charged) {
            charges.set(checkpoint, table, was_charged);
        }
    }

    /// Empty the table of a checkpoint, which is charged for nothing any more.
    pub fn drop_held(&mut self, checkpoint: u32, pool: &mut BlockPool) {
        let Some(table) = self.held.get_mut(checkpoint as usize) else { return };
        for charges in &mut self.charges {
            charges.set(checkpoint, table, false);
        }
        table.clear(pool);
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
