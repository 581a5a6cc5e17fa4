//! Going back, for every kind of memory.

use super::whole::Aside;
use super::{Context, fill};
use crate::cancel::Stoppable;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::survey::Survey;
use backstitch_kv::{AttentionSpec, Batch, LayerSpec, Memory, Pos, Route, SeqId, Stretch, Wanted};

/// What a rollback took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rollback {
    /// The position whose state was restored: the wanted one, or that of a checkpoint before it.
    pub restored_from: Pos,
    /// Tokens whose recurrences were stepped again from the journal, without the network.
    pub replayed: u32,
    /// Tokens that were evaluated again.
    pub reevaluated: u32,
}

impl Rollback {
    /// Return what a rollback took, made up by the caller: to show one, say.
    pub fn new(restored_from: Pos, replayed: u32, reevaluated: u32) -> Self {
        Rollback { restored_from, replayed, reevaluated }
    }
}

impl From<Route> for Rollback {
    fn from(route: Route) -> Self {
        let Route { restored_from, replayed, reevaluated, .. } = route;
        Rollback { restored_from, replayed, reevaluated }
    }
}

impl Context {
    /// Takes `seq` back to where its next position is `pos`. Works for every kind of memory: what is held comes back at once,
    /// recurrent states are stepped from the journal as far as it reaches, and what lies further back is evaluated
    /// again from the nearest checkpoint.
    ///
    /// # Errors
    /// [`Error::FuturePosition`] if `pos` lies beyond its end or below its first position; where tokens have to be evaluated
    /// again: [`Error::Edited`] if they are not known because the sequence was changed in its middle, and
    /// [`backstitch_kv::Error::Full`] if it shares cells with a fork and there is no room for its own.
    ///
    /// Nothing has changed then, with one exception. When tokens have to be evaluated again and there is no room beside the old
    /// cells, these are given up for the new; if that evaluation fails, the sequence ends at the checkpoint it started from.
    pub fn rollback(&mut self, seq: SeqId, pos: Pos) -> Result<Rollback, Error> {
        let start = self.history(seq)?.first();
        let end = self.end(seq);
        if pos > end || pos < start {
            return Err(Error::FuturePosition { pos: pos.0, end: end.0 });
        }
        let route = self.memory.route(seq, pos)?;
        if pos == end {
            return Ok(route.into());
        }
        if route.reevaluated > 0 {
            return self.reevaluate(seq, pos, route.restored_from);
        }
        self.rewind(seq, pos)?;
        self.cut_history(seq, pos);
        Ok(route.into())
    }

    /// Goes back as far as that takes no evaluation.
    pub(super) fn rewind(&mut self, seq: SeqId, pos: Pos) -> Result<(), Error> {
        let mut rewind = self.memory.rewind(seq, pos, self.params.n_ubatch as usize)?;
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        while let Some(mut ubatch) = rewind.next_ubatch() {
            self.runner.replay(&self.model, &work, &mut ubatch, &mut self.outputs)?;
        }
        Ok(rewind.commit()?)
    }

    pub(super) fn cut_history(&mut self, seq: SeqId, pos: Pos) {
        let left = self.left(seq);
        let mut pinned = None;
        if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
            history.remove(pos..Pos::MAX, left);
            pinned = history.pinned(pos);
        }
        self.outputs.give(seq, pinned);
    }

    /// Evaluates the tokens between a checkpoint and `pos` again. What the sequence held is kept aside until that is done.
    fn reevaluate(&mut self, seq: SeqId, pos: Pos, from: Pos) -> Result<Rollback, Error> {
        let history = self.history(seq)?;
        let (start, tokens) = history.between(from, pos).ok_or(Error::Edited { seq: seq.0 })?;
        let reevaluated = tokens.len() as u32;
        let mut batch = Batch::new();
        // The logits come at little cost now, and may later need all of this again.
        fill(&mut batch, seq, start, tokens, Wanted::Last)?;
        let is_shared = self.memory.shares_cells(seq, from)?;
        let mut aside = Aside::put(self, seq)?;
        let ctx = &mut *aside.ctx;
        let mut result = ctx.rewind(seq, from).and_then(|()| ctx.compute(&batch));
        if !is_shared && matches!(result, Err(Error::Memory(backstitch_kv::Error::Full { .. }))) {
            // No room for both. The cells are the sequence's alone, so without the old ones there is room for the new,
            // and what the old ones held is what will be computed again.
            aside.give_up();
            result = aside.ctx.compute(&batch);
        }
        if result.is_ok() {
            aside.give_up();
        }
        drop(aside);
        result?;
        self.outputs.give(seq, self.last_staged(&batch).ok());
        Ok(Rollback { restored_from: from, replayed: 0, reevaluated })
    }

    /// Makes the end of `seq` a position that a rollback reaches at once, until it is unpinned or left behind: a
    /// message's end, say. Its logits come back with it, if they are at hand now.
    ///
    /// # Errors
    /// [`Error::Sequence`]; [`backstitch_kv::Error::Pinned`] if the budget of checkpoints does not pay for it;
    /// [`Error::OutOfMemory`].
    pub fn pin(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
            history.make_room_for_pins(1)?;
        }
        self.memory.pin(seq)?;
        if self.model.graph().layers().iter().any(forgets) {
            let (end, logits) = (self.end(seq), self.outputs.keep(seq));
            if let (Some(Some(history)), Some(logits)) = (self.sequences.get_mut(seq.index()), logits) {
                history.pin(end, logits);
            }
        }
        Ok(())
    }

    /// Takes a pin away, from all forks that share it; false if there is none at `pos`.
    ///
    /// # Errors
    /// [`Error::Sequence`].
    pub fn unpin(&mut self, seq: SeqId, pos: Pos) -> Result<bool, Error> {
        self.history(seq)?;
        let was_pinned = self.memory.unpin(seq, pos)?;
        self.sequences.iter_mut().flatten().for_each(|history| history.unpin(pos));
        Ok(was_pinned)
    }

    /// Which positions of `seq` a rollback reaches in which way: at once, by stepping recurrences from a checkpoint, or by
    /// evaluating the tokens after one again.
    ///
    /// # Errors
    /// [`Error::Sequence`].
    pub fn positions(&self, seq: SeqId) -> Result<Vec<Stretch>, Error> {
        self.history(seq)?;
        Ok(self.memory.positions(seq)?)
    }

    /// What `seq` holds: blocks, states, checkpoints and journals, and the bytes of each.
    ///
    /// # Errors
    /// [`Error::Sequence`].
    pub fn survey(&self, seq: SeqId) -> Result<Survey, Error> {
        self.history(seq)?;
        Ok(self.memory.survey(seq)?)
    }
}

/// Return true if a layer does not keep all that going back by one token takes.
fn forgets(layer: &LayerSpec) -> bool {
    let is_windowed = matches!(&layer.attention, AttentionSpec::Cached(cached) if cached.window.is_some());
    is_windowed || !layer.recurrent.is_empty()
}
