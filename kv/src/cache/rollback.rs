//! Checkpoints of all caches, and restoring sequences from them.
//!
//! A checkpoint has a number, which each cache maps to what it retains for it: windowed caches
//! share blocks, the recurrent cache shares a state. Caches that retain all cells keep nothing for
//! checkpoints, since they can cut a sequence anywhere.

use super::Caches;
use super::charges::Charge;
use super::kv::KvCache;
use super::operation::Restore;
use crate::error::Error;
use crate::ids::{Pos, SeqId};

impl Caches {
    /// Return true if the KV caches hold what `seq` needs to go on from `pos` after a cut there.
    pub fn cells_can_cut(&self, seq: SeqId, pos: Pos) -> bool {
        self.kept().all(|kv| kv.is_whole(seq, pos))
    }

    /// Return true if all caches hold what `seq` needs to go on from `pos` after a cut there.
    pub fn can_cut(&self, seq: SeqId, pos: Pos) -> bool {
        self.cells_can_cut(seq, pos) && self.states.as_ref().is_none_or(|states| states.can_cut(seq, pos))
    }

    /// Return, for each cache, the first position from which on `seq` can be cut anywhere.
    pub fn cut_points(&self, seq: SeqId) -> impl Iterator<Item = Pos> {
        let states = self.states.as_ref().map(|states| states.cut_from(seq));
        self.kept().flat_map(move |kv| kv.cut_points(seq)).chain(states)
    }

    /// Retain the cells that `seq` needs to go on from `pos` as checkpoint `id`.
    ///
    /// The states of checkpoints in the middle of a batch are retained by the commit of the plan.
    pub fn hold_cells(&mut self, id: u32, seq: SeqId, pos: Pos) {
        self.kept_mut().for_each(|kv| kv.hold_window(id, seq, pos, false));
    }

    /// Retain cells and states that `seq` needs to go on from its end, `pos`, as checkpoint `id`.
    pub fn hold_end(&mut self, id: u32, seq: SeqId, pos: Pos) {
        self.hold_cells(id, seq, pos);
        self.states.iter_mut().for_each(|states| states.hold_end(id, seq, pos));
    }

    /// Retain all cells of `seq` as checkpoint `id`, which is at its end.
    pub fn hold_all(&mut self, id: u32, seq: SeqId) {
        self.kept_mut().for_each(|kv| kv.hold_window(id, seq, Pos::MAX, true));
    }

    /// Release the cells of checkpoint `id` that a sequence does not need to go on from `pos`.
    pub fn hold_less(&mut self, id: u32, pos: Pos) {
        self.kept_mut().for_each(|kv| kv.shrink_window(id, pos));
    }

    /// Release what checkpoint `id` retains.
    pub fn drop_checkpoint(&mut self, id: u32) {
        self.kept_mut().for_each(|kv| kv.drop_checkpoint(id));
        self.states.iter_mut().for_each(|states| states.drop_checkpoint(id));
    }

    /// Return true if checkpoints retain cells, of a window.
    pub fn has_windows(&self) -> bool {
        self.kept().any(|kv| kv.cells.window.is_some())
    }

    /// Charge the cells of checkpoint `id` to the budget, or no longer. States are charged by
    /// number.
    pub fn charge(&mut self, id: u32, charge: Charge, is_charged: bool) {
        self.kept_mut().for_each(|kv| kv.charge(id, charge, is_charged));
    }

    /// Return true if checkpoints retain more cells of a cache than the budget pays for.
    pub fn exceeds(&self, charge: Charge) -> bool {
        self.kept().any(|kv| kv.exceeds(charge))
    }

    /// Reserve the state that a rollback writes. `undo` releases it.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the checkpoint has no state.
    /// - [`Error::Full`] if no state is free.
    pub fn reserve_rollback(&mut self, seq: SeqId, from: &Restore) -> Result<(), Error> {
        self.states.iter_mut().try_for_each(|states| states.reserve_rollback(seq, from))
    }

    /// Roll `seq` back; the state that `reserve_rollback` reserved becomes current.
    pub fn roll_back(&mut self, seq: SeqId, from: &Restore) {
        self.kept_mut().for_each(|kv: &mut KvCache| kv.roll_back(seq, from));
        self.states.iter_mut().for_each(|states| states.roll_back(seq, from));
    }
}
