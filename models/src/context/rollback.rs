//! Rollback, for every kind of memory, with re-evaluation of tokens where it is necessary.

use super::{Context, fill};
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::survey::Survey;
use backstitch_kv::{Batch, CostRange, Pos, Route, SeqId, Wanted};

/// Work that a rollback took.
///
/// [`Context::rollback`] returns it. `replayed` and `reevaluated` are never both positive: a
/// re-evaluation computes recurrent states along with the rest.
///
/// # Example
/// ```
/// use backstitch_models::{Context, Model, Params, Pos, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let seq = ctx.sequence()?;
/// ctx.append(seq, &[Token(5), Token(6), Token(7)])?;
/// let done = ctx.rollback(seq, Pos(2))?;
/// assert_eq!(done.restored_from.0 as u32 + done.replayed + done.reevaluated, 2);
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rollback {
    /// Position that was restored: the requested one, or that of the checkpoint before it.
    pub restored_from: Pos,
    /// Journal rows replayed, without running the model.
    pub replayed: u32,
    /// Tokens re-evaluated.
    pub reevaluated: u32,
}

impl Rollback {
    /// Return a rollback with these costs, for a program that displays one.
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
    /// Roll `seq` back, so that `pos` is the position of its next token.
    ///
    /// This works for every kind of memory, with the bits that the sequence had there. Positions
    /// that are still held return at once; recurrent states are replayed from the journal as far as
    /// it reaches; for earlier positions tokens are re-evaluated from the nearest checkpoint.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - [`Error::FuturePosition`] if `pos` is beyond its end or below its first position.
    /// - [`Error::Edited`] if a token to re-evaluate is not known, because the sequence was changed
    ///   in its middle or consists of embeddings.
    /// - [`Error::Memory`] with [`backstitch_kv::Error::Full`] if tokens have to be re-evaluated,
    ///   the sequence shares cells with a fork, and no block is free.
    /// - [`Error::Cancelled`] or [`Error::OutOfMemory`] as in [`Context::decode`].
    ///
    /// Nothing has changed then, with one exception. If no block is free beside the former cells,
    /// re-evaluation drops those; if it then fails, the sequence ends at the checkpoint that it
    /// started from.
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

    /// Roll back as far as that needs no re-evaluation.
    pub(super) fn rewind(&mut self, seq: SeqId, pos: Pos) -> Result<(), Error> {
        let (memory, mut engine) = self.split();
        let rewind = memory.rewind(seq, pos, engine.params.n_ubatch as usize)?;
        engine.replay(rewind)
    }

    pub(super) fn cut_history(&mut self, seq: SeqId, pos: Pos) {
        let left = self.left(seq);
        let mut pinned = None;
        if let Some(history) = self.history_mut(seq) {
            history.remove(pos..Pos::MAX, left);
            pinned = history.pinned(pos);
        }
        self.outputs.forget(seq);
        self.outputs.give(seq, pinned);
    }

    /// Cut the history of a sequence that ended at `end` to what its memory holds.
    pub(super) fn cut_history_to_memory(&mut self, seq: SeqId, end: Pos) {
        let held = self.end(seq);
        if held < end {
            self.cut_history(seq, held);
        }
    }

    /// Re-evaluate the tokens between a checkpoint and `pos`. A savepoint keeps the former content
    /// until that is done.
    fn reevaluate(&mut self, seq: SeqId, pos: Pos, from: Pos) -> Result<Rollback, Error> {
        let history = self.history(seq)?;
        let (start, tokens) = history.between(from, pos).ok_or(Error::Edited { seq: seq.0 })?;
        let reevaluated = tokens.len() as u32;
        let mut batch = Batch::new();
        // The logits cost little now; later they could need the whole re-evaluation.
        fill(&mut batch, seq, start, tokens, Wanted::Last)?;
        let end = self.end(seq);
        let (memory, mut engine) = self.split();
        let mut savepoint = memory.savepoint(&[])?;
        let result = engine.reevaluate(&mut savepoint, seq, from, &batch);
        match result {
            Ok(()) => savepoint.commit(),
            Err(_) => drop(savepoint),
        }
        self.cut_history_to_memory(seq, end);
        result?;
        self.outputs.give(seq, self.last_staged(&batch).ok());
        Ok(Rollback { restored_from: from, replayed: 0, reevaluated })
    }

    /// Pin the end of `seq`, for example the end of a message: a rollback reaches it at once until
    /// it is unpinned or left behind. Its logits return with it, if they are available now.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - [`Error::Memory`] with [`backstitch_kv::Error::Pinned`] if pins use up the budget of
    ///   checkpoints.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn pin(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        if let Some(history) = self.history_mut(seq) {
            history.make_room_for_pins(1)?;
        }
        self.memory.pin(seq)?;
        // Without checkpoints, any logits take the evaluation of one token.
        if self.memory.needs_checkpoints() {
            let (end, logits) = (self.end(seq), self.outputs.keep(seq));
            if let (Some(history), Some(logits)) = (self.history_mut(seq), logits) {
                history.pin(end, logits);
            }
        }
        Ok(())
    }

    /// Remove a pin, from all forks that share it; return false if there is none at `pos`.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist.
    pub fn unpin(&mut self, seq: SeqId, pos: Pos) -> Result<bool, Error> {
        self.history(seq)?;
        let was_pinned = self.memory.unpin(seq, pos)?;
        // Others may have pins of their own at this position.
        for id in (0..self.params.n_seq_max).map(SeqId).filter(|_| was_pinned) {
            if self.history(id).is_ok_and(|history| history.pinned(pos).is_some())
                && !self.is_pinned(id, pos)
                && let Some(history) = self.history_mut(id)
            {
                history.unpin(pos);
            }
        }
        Ok(was_pinned)
    }

    fn is_pinned(&self, seq: SeqId, pos: Pos) -> bool {
        self.memory.pins(seq).is_ok_and(|mut pins| pins.any(|pin| pin == pos))
    }

    /// Return the pinned positions of `seq`, ascending.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist.
    pub fn pins(&self, seq: SeqId) -> Result<impl Iterator<Item = Pos> + '_, Error> {
        self.history(seq)?;
        Ok(self.memory.pins(seq)?)
    }

    /// Return the positions of `seq` as ranges of equal rollback cost: reached at once, by replay
    /// from a checkpoint, or by re-evaluation.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist.
    pub fn positions(&self, seq: SeqId) -> Result<Vec<CostRange>, Error> {
        self.history(seq)?;
        Ok(self.memory.positions(seq)?)
    }

    /// Return the blocks, states, checkpoints and journals of `seq`, with the bytes of each.
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist.
    pub fn survey(&self, seq: SeqId) -> Result<Survey, Error> {
        self.history(seq)?;
        Ok(self.memory.survey(seq)?)
    }
}
