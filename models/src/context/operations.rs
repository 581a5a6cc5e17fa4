//! Operations on sequences: the memory's, and what they mean for tokens and outputs.

use super::Context;
use super::history::{History, Left};
use crate::error::Error;
use backstitch_kv::{Memory, Pos, SeqId};
use core::ops::Range;

impl Context {
    /// The memory has one sequence more than callers know of.
    fn check_seq(&self, seq: SeqId) -> Result<(), Error> {
        if seq.0 < self.params.n_seq_max { Ok(()) } else { Err(Error::Sequence { seq: seq.0 }) }
    }

    pub(super) fn left(&self, seq: SeqId) -> Left {
        if self.memory.seq_pos_max(seq).is_some() { Left::Something } else { Left::Nothing }
    }

    /// Removes the tokens of `range` from `seq`, as [`Memory::seq_rm`]; where the memory cannot take off an end, it is rolled
    /// back.
    ///
    /// # Errors
    /// As there, and those of [`Context::rollback`].
    pub fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check_seq(seq)?;
        let touches = self.memory.has_seen(seq, &range);
        match self.memory.seq_rm(seq, range.clone()) {
            Err(backstitch_kv::Error::Unsupported { .. }) if range.end >= self.end(seq) => {
                return self.rollback(seq, range.start).map(drop);
            }
            result => result?,
        }
        if touches {
            self.outputs.forget(seq);
            let left = self.left(seq);
            if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
                history.remove(range, left);
            }
        }
        Ok(())
    }

    /// Copies a sequence as a whole and rolls the copy back, or does neither.
    fn copy_prefix(&mut self, src: SeqId, dst: SeqId, end: Pos, history: History) -> Result<(), Error> {
        self.memory.seq_cp(src, dst, Pos::ZERO..Pos::MAX)?;
        let before = self.sequences[dst.index()].replace(history);
        self.outputs.forget(dst);
        let result = self.rollback(dst, end);
        if result.is_err() {
            self.sequences[dst.index()] = before;
            self.memory.seq_rm(dst, Pos::ZERO..Pos::MAX)?;
        }
        result.map(drop)
    }

    /// Gives the tokens of `range` of `src` to the empty sequence `dst` as well, as [`Memory::seq_cp`]; where the memory has
    /// only the whole, the copy of a beginning is rolled back.
    ///
    /// # Errors
    /// As there, and [`Error::Sequence`], [`Error::OutOfMemory`].
    pub fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error> {
        let mut history = self.history(src)?.duplicate(self.params.n_ctx)?;
        self.check_seq(dst)?;
        match self.memory.seq_cp(src, dst, range.clone()) {
            Err(backstitch_kv::Error::Unsupported { .. }) if range.start <= history.first() => {
                return self.copy_prefix(src, dst, range.end, history);
            }
            result => result?,
        }
        history.keep(range, self.left(dst));
        self.sequences[dst.index()] = Some(history);
        self.outputs.forget(dst);
        Ok(())
    }

    /// Drops every sequence but `seq`, as [`Memory::seq_keep`].
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        self.memory.seq_keep(seq)?;
        for id in (0..self.params.n_seq_max).map(SeqId).filter(|&id| id != seq) {
            self.sequences[id.index()] = None;
            self.outputs.forget(id);
        }
        Ok(())
    }

    /// Moves the tokens of `range` by `delta` positions, as [`Memory::seq_add`].
    ///
    /// # Errors
    /// As there.
    pub fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error> {
        self.check_seq(seq)?;
        let touches = delta != 0 && self.memory.has_seen(seq, &range);
        self.memory.seq_add(seq, range, delta)?;
        if touches {
            self.edited(seq);
        }
        Ok(())
    }

    /// Divides the positions of `range`, as [`Memory::seq_div`].
    ///
    /// # Errors
    /// As there.
    pub fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error> {
        self.check_seq(seq)?;
        let touches = divisor != 1 && self.memory.has_seen(seq, &range);
        self.memory.seq_div(seq, range, divisor)?;
        if touches {
            self.edited(seq);
        }
        Ok(())
    }

    fn edited(&mut self, seq: SeqId) {
        self.outputs.forget(seq);
        let left = self.left(seq);
        if let Some(Some(history)) = self.sequences.get_mut(seq.index()) {
            match left {
                Left::Nothing => history.clear(),
                Left::Something => history.edit(),
            }
        }
    }

    /// The first and the last position of `seq`, as [`Memory::seq_pos_min`] and [`Memory::seq_pos_max`]; none if it is empty.
    pub fn seq_range(&self, seq: SeqId) -> Option<(Pos, Pos)> {
        self.check_seq(seq).ok()?;
        Some((self.memory.seq_pos_min(seq)?, self.memory.seq_pos_max(seq)?))
    }

    /// Drops all sequences.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.sequences.fill_with(|| None);
        self.outputs.clear();
    }
}
