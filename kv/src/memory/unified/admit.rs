//! What can be said about a batch or a sequence before anything is reserved.

use super::Unified;
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::room;
use backstitch_core::cell::BLOCK_CELLS;

const CELLS: u64 = BLOCK_CELLS as u64;

impl Unified {
    /// Whether nothing is let go, so that cells can run out.
    pub(super) fn keeps_all(&self) -> bool {
        self.recycle.is_none()
    }

    /// Checks that a batch of any length leaves each sequence within its cells and that there are as many cells as it has
    /// tokens. Blocks can run out all the same: sequences do not share the rest of one.
    pub(super) fn check_cells(&self, batch: &Batch) -> Result<(), Error> {
        let mut new = room::filled(self.tables.len(), 0u32)?;
        for seq in batch.all_seqs() {
            new[seq.index()] += 1;
        }
        let mut open = 0;
        for (seq, (table, &new)) in (0..).map(SeqId).zip(self.tables.iter().zip(&new)) {
            let free = self.n_ctx.saturating_sub(table.n_cells());
            if new > free {
                return Err(Error::Full { what: "cells", need: new.into(), free: free.into(), seq });
            }
            if new > 0 {
                open += u64::from(table.n_slots()).wrapping_neg() % CELLS;
            }
        }
        let (n_tokens, free) = (batch.len() as u64, u64::from(self.pool.n_free()) * CELLS);
        if n_tokens > open + free {
            let need = (n_tokens - open).next_multiple_of(CELLS);
            let seq = batch.seqs((open + free) as usize).first().copied().unwrap_or_default();
            return Err(Error::Full { what: "cells", need, free, seq });
        }
        Ok(())
    }

    /// Whether others use a block that `seq` has cells in from `pos` on, or would go on in from there.
    pub(super) fn shares_blocks(&self, seq: SeqId, pos: Pos) -> bool {
        let table = self.table(seq);
        let slot = table.lower_bound(&self.pool, pos);
        let first = slot / BLOCK_CELLS as u32 * BLOCK_CELLS as u32;
        table.touched(first..u32::MAX).any(|(_, block, _)| self.pool.refs(block) > 1)
    }
}
