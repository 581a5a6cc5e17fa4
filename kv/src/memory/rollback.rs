//! Rollback: its cost, pins, and the effect of other operations on checkpoints.
//!
//! [`Checkpoints`](crate::rollback::Checkpoints) keeps the positions to which each sequence can
//! return. Here a [`Memory`] combines it with what its caches still hold: a position costs what the
//! layer with the shortest memory needs.

use super::Memory;
use super::rewind::Rewind;
use crate::cache::operation::{Op, Restore};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::rollback::{CostRange, Route};
use crate::rollback_cost::{CheckpointAt, costs, route_from};
use alloc::vec::Vec;

impl Memory {
    /// Return the rollback cost of `pos`, the next position of `seq` after the rollback.
    ///
    /// # Errors
    /// - [`Error::Future`] if the sequence ends before `pos`.
    /// - [`Error::Range`] if `pos` is negative.
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    pub fn route(&self, seq: SeqId, pos: Pos) -> Result<Route, Error> {
        self.check_pos(seq, pos)?;
        Ok(self.route_and_restore(seq, pos, 1).0)
    }

    /// Pin the end of `seq`: a checkpoint that stays until it is unpinned or the sequence is rolled
    /// back behind it.
    ///
    /// # Errors
    /// - [`Error::Pinned`] if pins use up the budget of checkpoints.
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    pub fn pin(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.undo();
        let end = self.end(seq);
        self.checkpoints.pin(seq, end, &mut self.caches)
    }

    /// Unpin the checkpoint at `pos`; return false if there is no pin.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn unpin(&mut self, seq: SeqId, pos: Pos) -> Result<bool, Error> {
        self.check_seq(seq)?;
        Ok(self.checkpoints.unpin(seq, pos, &mut self.caches))
    }

    /// Return the pinned positions of `seq`, ascending.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn pins(&self, seq: SeqId) -> Result<impl Iterator<Item = Pos> + '_, Error> {
        self.check_seq(seq)?;
        let pinned = self.checkpoints.list(seq).iter().filter(|entry| self.checkpoints.get(entry.id).pinned);
        Ok(pinned.map(|entry| entry.pos))
    }

    /// Return the position that the next token of `seq` gets.
    pub(crate) fn end(&self, seq: SeqId) -> Pos {
        self.caches.pos_max(seq).map_or(Pos::ZERO, |last| Pos(last.0 + 1))
    }

    /// Check that `pos` is a position of `seq` or its end.
    fn check_pos(&self, seq: SeqId, pos: Pos) -> Result<(), Error> {
        self.check_seq(seq)?;
        let end = self.end(seq);
        if pos < Pos::ZERO {
            return Err(Error::Range { start: pos, end });
        }
        if pos > end { Err(Error::Future { seq, pos, end }) } else { Ok(()) }
    }

    /// Return the cost of a rollback to a position of `seq` and the instructions for it.
    fn route_and_restore(&self, seq: SeqId, pos: Pos, n_ubatch: u32) -> (Route, Restore) {
        let entry = self.checkpoints.before(seq, pos);
        if pos == Pos::ZERO || self.caches.can_cut(seq, pos) {
            // A checkpoint there can have more cells behind a window than the sequence.
            let checkpoint = entry.filter(|entry| entry.pos == pos).map(|entry| entry.id);
            return (Route::at_once(pos), Restore { checkpoint, to: pos, rows: 0..0, n_ubatch });
        }
        let first_row = entry.and_then(|entry| self.checkpoints.first_row(entry.id));
        let nearest = entry.map(|entry| CheckpointAt {
            pos: entry.pos,
            n_rows: if first_row.is_some() { entry.n_rows } else { 0 },
        });
        let route = route_from(nearest, pos, self.caches.cells_can_cut(seq, pos));
        let first_row = first_row.unwrap_or(0);
        let restore = Restore {
            checkpoint: entry.map(|entry| entry.id),
            to: if route.reevaluated > 0 { route.restored_from } else { pos },
            rows: first_row..first_row + route.replayed,
            n_ubatch,
        };
        (route, restore)
    }

    /// Prepare a rollback of `seq` to `pos` or, if tokens have to be re-evaluated, to the
    /// checkpoint before it. The journal is replayed in ubatches of at most `n_ubatch` tokens.
    ///
    /// # Errors
    /// - Those of [`Memory::route`].
    /// - [`Error::Full`] if no state slot is free.
    /// - [`Error::Shape`] if `n_ubatch` is 0.
    pub fn rewind(&mut self, seq: SeqId, pos: Pos, n_ubatch: usize) -> Result<Rewind<'_>, Error> {
        self.undo();
        if n_ubatch == 0 {
            return Err(Error::Shape { what: "tokens of a ubatch", found: 0, wanted: 1 });
        }
        let n_ubatch = n_ubatch.min(1 << 20) as u32;
        self.check_pos(seq, pos)?;
        let (route, restore) = self.route_and_restore(seq, pos, n_ubatch);
        self.open = true;
        self.caches.reserve_rollback(seq, &restore).inspect_err(|_| self.undo())?;
        Ok(Rewind { memory: self, seq, route, restore, started: 0 })
    }

    /// Make the end of `seq` its rollback floor, because the caller does not know the tokens before
    /// it, as those of embeddings: no rollback to a position from there on re-evaluates one of
    /// them. Earlier positions that are pinned or still held stay in reach. The next floor takes
    /// its place.
    ///
    /// Operations that change tokens before the end of a sequence make floors themselves.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn set_floor(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.undo();
        let end = self.end(seq);
        self.checkpoints.floor(seq, end, &mut self.caches);
        self.checkpoints.tidy(seq, end, &mut self.caches);
        Ok(())
    }

    /// Drop the checkpoints of `seq` behind its new end, which takes the place of a dropped floor.
    pub(super) fn cut_checkpoints(&mut self, seq: SeqId) {
        let end = self.end(seq);
        if end == Pos::ZERO {
            self.checkpoints.forget(seq, &mut self.caches);
        } else if self.checkpoints.truncate(seq, end, &mut self.caches) {
            self.checkpoints.floor(seq, end, &mut self.caches);
        }
    }

    /// Return the positions of `seq` as ranges of equal rollback cost, ascending, the current end
    /// included.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`] if there is no such sequence.
    pub fn positions(&self, seq: SeqId) -> Result<Vec<CostRange>, Error> {
        self.check_seq(seq)?;
        let checkpoints = self.checkpoints.list(seq).iter();
        let checkpoints = checkpoints.map(|entry| CheckpointAt { pos: entry.pos, n_rows: entry.n_rows });
        let route = |pos| self.route_and_restore(seq, pos, 1).0;
        Ok(costs(self.end(seq), checkpoints, self.caches.cut_points(seq), route))
    }

    /// Let checkpoints follow an operation that changed something, and drop those that no longer
    /// describe the sequence; `end` is its end before.
    pub(super) fn apply_on_checkpoints(&mut self, op: &Op, end: Pos) {
        match op {
            Op::Remove { seq, range } if range.end >= end && range.start > Pos::ZERO => {
                self.cut_checkpoints(*seq);
            }
            // The sequence no longer holds what older checkpoints have seen.
            Op::Remove { seq, .. } | Op::Move { seq, .. } => {
                let end = self.end(*seq);
                self.checkpoints.forget(*seq, &mut self.caches);
                self.checkpoints.floor(*seq, end, &mut self.caches);
            }
            Op::Copy { src, dst, range } if range.start == Pos::ZERO => {
                self.checkpoints.share(*src, *dst);
                self.cut_checkpoints(*dst);
            }
            Op::Copy { dst, .. } => self.checkpoints.floor(*dst, self.end(*dst), &mut self.caches),
        }
    }
}
