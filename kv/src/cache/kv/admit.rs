//! Questions about a batch or a sequence that are answered before anything is reserved.

use super::KvCache;
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;
use backstitch_core::cell::BLOCK_CELLS;

/// Cells of a block.
const CELLS: u64 = BLOCK_CELLS as u64;

impl KvCache {
    /// Check that a batch of any length leaves each sequence within its cells, and that as many
    /// cells are free as it has tokens.
    ///
    /// Blocks can run out all the same, because sequences do not share the free cells of a block.
    ///
    /// # Errors
    /// - [`Error::Full`] names the sequence that would exceed its cells, or the first one without a
    ///   cell.
    /// - [`Error::OutOfMemory`] if the counts cannot be allocated.
    pub fn check_cells(&self, batch: &Batch) -> Result<(), Error> {
        let mut new = reserve::filled(self.cells.tables.len(), 0u32)?;
        for seq in batch.all_seqs() {
            new[seq.index()] += 1;
        }
        let mut open = 0;
        for (seq, (table, &new)) in (0..).map(SeqId).zip(self.cells.tables.iter().zip(&new)) {
            let free = self.cells.n_ctx.saturating_sub(table.n_cells());
            if new > free {
                return Err(Error::Full { what: "cells", need: new.into(), free: free.into(), seq });
            }
            if new > 0 {
                open += u64::from(table.n_slots()).wrapping_neg() % CELLS;
            }
        }
        let (n_tokens, free) = (batch.len() as u64, u64::from(self.cells.pool.n_free()) * CELLS);
        if n_tokens > open + free {
            let need = (n_tokens - open).next_multiple_of(CELLS);
            let seq = batch.seqs((open + free) as usize).first().copied().unwrap_or_default();
            return Err(Error::Full { what: "cells", need, free, seq });
        }
        Ok(())
    }

    /// Return true if a block has other users in which `seq` has cells from `pos` on, or would
    /// append at `pos`.
    pub fn shares_blocks(&self, seq: SeqId, pos: Pos) -> bool {
        let table = self.table(seq);
        let slot = table.lower_bound(&self.cells.pool, pos);
        let first = slot / BLOCK_CELLS as u32 * BLOCK_CELLS as u32;
        table.touched(first..u32::MAX).any(|(_, block, _)| self.cells.pool.refs(block) > 1)
    }
}
