//! Appending cells to sequences, for a plan.
//!
//! A cell goes to the block at the end of its sequence. If that block has other users, the sequence
//! first moves to a copy (copy on write). All of this is reserved for a whole batch before anything
//! is computed, and logged so that it can be undone: `marks` holds the former end of each table,
//! and `swaps` the blocks that were exchanged for copies.
//!
//! Reference counts change while reserving. The tables keep the original block until the ubatch of
//! a swap begins, because until then tokens of earlier ubatches are still being stored in the
//! original.

use super::KvCache;
use super::swap::{Swap, copies};
use crate::batch::Batch;
use crate::batch::split::{Segment, SplitBatch};
use crate::cache::block::NO_BLOCK;
use crate::cache::slots::Demand;
use crate::cache::view::{Cell, Visible};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;
use backstitch_core::cell::BLOCK_CELLS;

impl KvCache {
    /// Carry out the swaps of a ubatch: copy the blocks, and put the copies into the tables.
    pub fn begin(&mut self, ubatch: u32) {
        for (_, copy) in copies(&self.swaps).filter(|(of, _)| *of == ubatch) {
            self.cells.bytes.copy(copy.from, copy.to);
        }
        for swap in self.swaps.iter_mut().filter(|swap| swap.ubatch == ubatch) {
            self.cells.tables[swap.seq.index()].set_block(swap.index, swap.to);
            swap.done = true;
        }
    }

    /// Make what was reserved part of the sequences; a cache of one batch releases it instead.
    pub fn commit(&mut self) {
        if !self.keeps() {
            return self.undo();
        }
        for swap in self.swaps.iter().filter(|swap| swap.held) {
            self.cells.pool.release(swap.from);
        }
        self.swaps.clear();
    }

    /// Release the cells that sequences of the committed plan no longer see, and forget the plan.
    pub fn release_unseen(&mut self) {
        for seq in 0..self.marks.len() {
            if self.marks[seq].is_some() {
                self.release_behind(SeqId(seq as u32));
            }
        }
        self.forget_plan();
    }

    /// Remove what was appended, and return to the original blocks.
    pub fn undo(&mut self) {
        for swap in self.swaps.iter().rev() {
            if swap.done {
                self.cells.tables[swap.seq.index()].set_block(swap.index, swap.from);
            }
            if !swap.held {
                self.cells.pool.retain(swap.from);
            }
            self.cells.pool.release(swap.to);
        }
        for (table, mark) in self.cells.tables.iter_mut().zip(&self.marks) {
            mark.iter().for_each(|mark| table.back_to(&mut self.cells.pool, *mark));
        }
        self.forget_plan();
    }

    /// Reserve cells for all tokens, counting the blocks that are missing; the caller undoes it on
    /// error.
    pub(super) fn reserve_all(&mut self, batch: &Batch, split_batch: &SplitBatch) -> Result<(), Error> {
        let free = self.cells.pool.n_free();
        for (ubatch, span) in split_batch.ubatches().iter().enumerate() {
            for segment in &split_batch.segments()[span.segments.clone()] {
                let tokens = &split_batch.tokens()[segment.tokens.clone()];
                let Some(first) = tokens.first() else { continue };
                let seqs = batch.seqs(first.index as usize);
                self.enter(seqs, segment, first.index)?;
                for token in tokens {
                    self.append(seqs, token.pos, ubatch as u32)?;
                }
            }
        }
        self.check_room(batch, split_batch, free)
    }

    /// Check that `free` blocks were enough, and that no sequence exceeds its cells.
    fn check_room(&self, batch: &Batch, split_batch: &SplitBatch, free: u32) -> Result<(), Error> {
        self.demand.check(free, "cells", BLOCK_CELLS)?;
        let segments = split_batch.segments().iter();
        for &seq in segments.flat_map(|segment| split_batch.seqs(segment, batch)) {
            let before = self.marks[seq.index()].map_or(0, |mark| mark.n_cells);
            let after = self.table(seq).n_cells();
            if after > self.cells.n_ctx {
                let (need, free) = ((after - before).into(), self.cells.n_ctx.saturating_sub(before).into());
                return Err(Error::Full { what: "cells", need, free, seq });
            }
        }
        Ok(())
    }

    /// Note the ends of sequences before the plan, and check that the sequences of one token hold
    /// the same cells.
    fn enter(&mut self, seqs: &[SeqId], segment: &Segment, index: u32) -> Result<(), Error> {
        for seq in seqs {
            self.marks[seq.index()].get_or_insert_with(|| self.cells.tables[seq.index()].mark());
        }
        let [first, rest @ ..] = seqs else { return Ok(()) };
        if segment.goes_on {
            return Ok(());
        }
        match rest.iter().find(|seq| self.table(**seq).extents() != self.table(*first).extents()) {
            Some(&other) => Err(Error::Diverged { index, seq: *first, other }),
            None => Ok(()),
        }
    }

    /// Append one cell to sequences that hold the same cells.
    fn append(&mut self, seqs: &[SeqId], pos: Pos, ubatch: u32) -> Result<(), Error> {
        let [first, ..] = seqs else { return Ok(()) };
        let block = match self.table(*first).open_tail() {
            Some((index, block)) if self.is_taken(*first, block, seqs.len() as u32) => {
                self.swap(seqs, index, block, ubatch)?
            }
            Some((_, block)) => block,
            None => self.open(seqs)?,
        };
        let mut slot = 0;
        for seq in seqs {
            slot = self.cells.tables[seq.index()].push_cell();
        }
        let cell = slot % BLOCK_CELLS as u32;
        self.cells.pool.set_pos(block, cell, pos);
        self.cells.placed.push(Cell { block, cell });
        for view in &mut self.views {
            let lo = match view.window.map_or(Pos::ZERO, |window| window.first(pos)) {
                Pos::ZERO => 0,
                oldest => self.cells.tables[first.index()].lower_bound(&self.cells.pool, oldest),
            };
            view.visible.push(Visible { seq: *first, lo, hi: slot + 1 });
        }
        Ok(())
    }

    /// Return true if the next cell of `seq` in `block` may belong to other users than the `n`
    /// sequences that it is appended to.
    ///
    /// Those are the users of the block, and sequences that left it in this plan and return if the
    /// plan is undone.
    fn is_taken(&self, seq: SeqId, block: u32, n: u32) -> bool {
        let cell = self.table(seq).n_slots() % BLOCK_CELLS as u32;
        let left = |swap: &Swap| swap.from == block && swap.live >> cell != 0;
        self.cells.pool.refs(block) > n || self.swaps.iter().any(left)
    }

    /// Take a block for some sequences, or note the first sequence that got none.
    fn take_block(&mut self, seqs: &[SeqId]) -> u32 {
        let first = seqs.first().copied().unwrap_or_default();
        self.demand.take(&mut self.cells.pool, seqs.len() as u32, first).unwrap_or(NO_BLOCK)
    }

    /// Append a new block to sequences.
    fn open(&mut self, seqs: &[SeqId]) -> Result<u32, Error> {
        for seq in seqs {
            self.cells.tables[seq.index()].make_room_for_one()?;
        }
        let block = self.take_block(seqs);
        for seq in seqs {
            self.cells.tables[seq.index()].open(block);
        }
        Ok(block)
    }

    /// Exchange a shared block at the end of sequences for a copy.
    fn swap(&mut self, seqs: &[SeqId], index: usize, from: u32, ubatch: u32) -> Result<u32, Error> {
        let n_swaps = self.swaps.len() + seqs.len();
        reserve::for_len(&mut self.swaps, n_swaps)?;
        let to = self.take_block(seqs);
        self.cells.pool.copy_pos(from, to);
        for &seq in seqs {
            let table = &mut self.cells.tables[seq.index()];
            let live = table.extents().get(index).map_or(0, |extent| extent.live);
            table.set_block(index, to);
            let held = self.cells.pool.refs(from) == 1;
            if !held {
                self.cells.pool.release(from);
            }
            self.swaps.push(Swap { ubatch, seq, index, from, to, live, held, done: true });
        }
        Ok(to)
    }

    /// Put the original blocks back into the tables until the ubatch of each swap begins.
    pub(super) fn postpone_swaps(&mut self) {
        for swap in self.swaps.iter_mut().rev() {
            self.cells.tables[swap.seq.index()].set_block(swap.index, swap.from);
            swap.done = false;
        }
    }

    /// Forget the plan without changing tables.
    fn forget_plan(&mut self) {
        self.marks.fill(None);
        self.swaps.clear();
        self.cells.placed.clear();
        self.views.iter_mut().for_each(|view| view.visible.clear());
        self.demand = Demand::default();
    }
}
