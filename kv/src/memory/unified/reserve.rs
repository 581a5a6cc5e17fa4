//! Appending to sequences, for a plan.
//!
//! Cells go to the block at a sequence's end. If others use that block too, the sequence moves to a copy first. All of
//! this is reserved for a whole batch before anything is computed, and logged, so that it can be undone: the log holds
//! where each table ended (`saved`) and which blocks were exchanged for copies (`swaps`). Reference counts change while
//! reserving; the tables themselves take a swap over when its ubatch begins, because until then the original is where the
//! tokens before it are being stored.

use super::storage::copy_bytes;
use super::{Cell, Unified, Visible};
use crate::batch::Batch;
use crate::block::NO_BLOCK;
use crate::error::Error;
use crate::extent::Mark;
use crate::ids::{Pos, SeqId};
use crate::room;
use crate::split::Schedule;
use crate::storage::CellCopy;
use backstitch_core::cell::BLOCK_CELLS;

/// A sequence that a plan appends to.
pub(super) struct Saved {
    seq: SeqId,
    mark: Mark,
}

/// A shared block that a plan exchanged for a copy.
pub(crate) struct Swap {
    ubatch: u32,
    seq: SeqId,
    index: usize,
    from: u32,
    to: u32,
    /// The cells of `from` that undoing gives back to the sequence.
    live: u32,
    /// Nobody else uses `from`: it goes back to the pool on commit, and no earlier.
    held: bool,
    /// Whether the table has the copy.
    done: bool,
}

/// The copies that swaps take, in their order, each with its ubatch.
pub(crate) fn copies(swaps: &[Swap]) -> impl Iterator<Item = (u32, CellCopy)> + '_ {
    // Sequences that move together share a copy.
    let is_new = |(i, swap): &(usize, &Swap)| *i == 0 || swaps[i - 1].to != swap.to;
    let copy = |swap: &Swap| CellCopy { cache: 0, from: swap.from, to: swap.to, cells: swap.live };
    swaps.iter().enumerate().filter(is_new).map(move |(_, swap)| (swap.ubatch, copy(swap)))
}

impl Unified {
    /// Finds room for a batch, or changes nothing.
    pub(super) fn reserve_batch(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        match self.reserve_all(batch, schedule) {
            Ok(()) => self.postpone_swaps(),
            Err(error) => {
                self.undo_plan();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Does the swaps of a ubatch.
    pub(super) fn begin_ubatch(&mut self, ubatch: u32) {
        for (_, copy) in copies(&self.swaps).filter(|(of, _)| *of == ubatch) {
            copy_bytes(&mut self.layers, copy.from, copy.to);
        }
        for swap in self.swaps.iter_mut().filter(|swap| swap.ubatch == ubatch) {
            self.tables[swap.seq.index()].set_block(swap.index, swap.to);
            swap.done = true;
        }
    }

    /// Keeps what was appended.
    pub(super) fn commit_plan(&mut self) {
        for swap in self.swaps.iter().filter(|swap| swap.held) {
            self.pool.release(swap.from);
        }
        self.swaps.clear();
    }

    /// Gives back what the sequences of the committed plan no longer see.
    pub(super) fn settle_plan(&mut self) {
        for i in 0..self.saved.len() {
            let seq = self.saved[i].seq;
            self.recycle(seq);
        }
        self.forget_plan();
    }

    /// Takes back what was appended.
    pub(super) fn undo_plan(&mut self) {
        for swap in self.swaps.iter().rev() {
            if swap.done {
                self.tables[swap.seq.index()].set_block(swap.index, swap.from);
            }
            if !swap.held {
                self.pool.retain(swap.from);
            }
            self.pool.release(swap.to);
        }
        for saved in &self.saved {
            self.tables[saved.seq.index()].back_to(&mut self.pool, saved.mark);
        }
        self.forget_plan();
    }

    /// Reserves cells for all tokens, counting blocks that are not there.
    fn reserve_all(&mut self, batch: &Batch, schedule: &Schedule) -> Result<(), Error> {
        let free = self.pool.n_free();
        for (ubatch, span) in schedule.ubatches().iter().enumerate() {
            for run in &schedule.runs()[span.runs.clone()] {
                let tokens = &schedule.tokens()[run.tokens.clone()];
                let Some(first) = tokens.first() else { continue };
                let seqs = batch.seqs(first.index as usize);
                self.enter(batch, seqs, first.index)?;
                for token in tokens {
                    self.append(seqs, token.pos, ubatch as u32)?;
                }
                let last = tokens.last().map(|token| token.index);
                for seq in seqs {
                    self.last[seq.index()] = last;
                }
            }
        }
        self.check_room(free)
    }

    fn check_room(&self, free: u32) -> Result<(), Error> {
        if self.need > free {
            let cells = |blocks: u32| u64::from(blocks) * BLOCK_CELLS as u64;
            let seq = self.lacking.unwrap_or_default();
            return Err(Error::Full { what: "cells", need: cells(self.need), free: cells(free), seq });
        }
        for saved in &self.saved {
            let (before, after) = (saved.mark.n_cells(), self.table(saved.seq).n_cells());
            if after > self.n_ctx {
                let free = self.n_ctx.saturating_sub(before).into();
                return Err(Error::Full {
                    what: "cells",
                    need: u64::from(after - before),
                    free,
                    seq: saved.seq,
                });
            }
        }
        Ok(())
    }

    /// Notes where sequences ended before the plan, and checks that those of one token hold the same cells.
    fn enter(&mut self, batch: &Batch, seqs: &[SeqId], index: u32) -> Result<(), Error> {
        for &seq in seqs {
            if self.last[seq.index()].is_none() {
                room::for_one(&mut self.saved)?;
                self.saved.push(Saved { seq, mark: self.tables[seq.index()].mark() });
                // So that a sequence is noted once; the run's end replaces it.
                self.last[seq.index()] = Some(u32::MAX);
            }
        }
        let [first, rest @ ..] = seqs else { return Ok(()) };
        let together = |seq: &SeqId| self.last[seq.index()].is_some_and(|i| batch.seqs(i as usize) == seqs);
        if seqs.iter().all(together) {
            return Ok(());
        }
        match rest.iter().find(|seq| self.table(**seq).extents() != self.table(*first).extents()) {
            Some(&other) => Err(Error::Diverged { index, seq: *first, other }),
            None => Ok(()),
        }
    }

    /// Appends one cell to sequences that hold the same cells.
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
            slot = self.tables[seq.index()].push_cell();
        }
        let cell = slot % BLOCK_CELLS as u32;
        self.pool.set_pos(block, cell, pos);
        self.cells.push(Cell { block, cell });
        for view in &mut self.views {
            let lo = match view.window.map_or(Pos::ZERO, |window| window.first(pos)) {
                Pos::ZERO => 0,
                oldest => self.tables[first.index()].lower_bound(&self.pool, oldest),
            };
            view.visible.push(Visible { seq: *first, lo, hi: slot + 1 });
        }
        Ok(())
    }

    /// Whether the next cell of `seq` in `block` may belong to others than the `n` that it is appended for: to those
    /// who use the block, or to those who left it in this plan and come back if it is undone.
    fn is_taken(&self, seq: SeqId, block: u32, n: u32) -> bool {
        let cell = self.table(seq).n_slots() % BLOCK_CELLS as u32;
        let left = |swap: &Swap| swap.from == block && swap.live >> cell != 0;
        self.pool.refs(block) > n || self.swaps.iter().any(left)
    }

    /// A block for some sequences, if there is one; notes who was the first to get none.
    fn take_block(&mut self, seqs: &[SeqId]) -> u32 {
        self.pool.take(seqs.len() as u32).unwrap_or_else(|| {
            self.lacking = self.lacking.or(seqs.first().copied());
            NO_BLOCK
        })
    }

    /// A new block at the end of sequences.
    fn open(&mut self, seqs: &[SeqId]) -> Result<u32, Error> {
        for seq in seqs {
            self.tables[seq.index()].make_room_for_one()?;
        }
        self.need += 1;
        let block = self.take_block(seqs);
        for seq in seqs {
            self.tables[seq.index()].open(block);
        }
        Ok(block)
    }

    /// Exchanges a block at the end of sequences, which others use too, for a copy.
    fn swap(&mut self, seqs: &[SeqId], index: usize, from: u32, ubatch: u32) -> Result<u32, Error> {
        let n_swaps = self.swaps.len() + seqs.len();
        room::for_len(&mut self.swaps, n_swaps)?;
        self.need += 1;
        let to = self.take_block(seqs);
        self.pool.copy_pos(from, to);
        for &seq in seqs {
            let table = &mut self.tables[seq.index()];
            let live = table.extents().get(index).map_or(0, |extent| extent.live);
            table.set_block(index, to);
            let held = self.pool.refs(from) == 1;
            if !held {
                self.pool.release(from);
            }
            self.swaps.push(Swap { ubatch, seq, index, from, to, live, held, done: true });
        }
        Ok(to)
    }

    /// Gives the tables their original blocks until the ubatch of each swap begins.
    fn postpone_swaps(&mut self) {
        for swap in self.swaps.iter_mut().rev() {
            self.tables[swap.seq.index()].set_block(swap.index, swap.from);
            swap.done = false;
        }
    }

    fn forget_plan(&mut self) {
        for saved in self.saved.drain(..) {
            self.last[saved.seq.index()] = None;
        }
        self.swaps.clear();
        self.cells.clear();
        self.views.iter_mut().for_each(|view| view.visible.clear());
        self.need = 0;
        self.lacking = None;
    }
}
