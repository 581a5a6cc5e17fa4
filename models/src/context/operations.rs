//! Operations on sequences, applied to the memory, the tokens and the outputs together.

use super::Context;
use super::history::{History, Left};
use crate::adapter::AdapterSet;
use crate::error::Error;
use backstitch_kv::{Pos, SeqId};
use core::ops::Range;

impl Context {
    /// Return [`Left::Something`] if the memory holds tokens of `seq`.
    pub(super) fn left(&self, seq: SeqId) -> Left {
        if self.memory.seq_pos_max(seq).is_some() { Left::Something } else { Left::Nothing }
    }

    /// Remove the tokens of `range` from `seq`, like [`backstitch_kv::Memory::seq_rm`]. If a
    /// recurrent layer cannot remove the end of a sequence, the sequence is rolled back. A sequence
    /// without tokens exists until it is released.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if `seq` does not exist.
    /// - Those of [`backstitch_kv::Memory::seq_rm`] and of [`Context::rollback`].
    pub fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.history(seq)?;
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
            if let Some(history) = self.history_mut(seq) {
                history.remove(range, left);
            }
        }
        Ok(())
    }

    /// Copy a whole sequence and roll the copy back, or do neither.
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

    /// Share the tokens of `range` of `src` with the empty sequence `dst`, like
    /// [`backstitch_kv::Memory::seq_cp`]. If a recurrent layer can only share the whole, a prefix
    /// is copied by a rollback of the copy. `dst` must exist; [`Context::fork`] creates a sequence
    /// and shares all tokens with it.
    ///
    /// # Errors
    /// - [`Error::Sequence`] if `src` or `dst` does not exist.
    /// - [`Error::Adapter`] if they have different adapters.
    /// - Those of [`backstitch_kv::Memory::seq_cp`].
    /// - Those of [`Context::rollback`], for a prefix.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error> {
        let mut history = self.history(src)?.duplicate(self.params.n_ctx)?;
        self.history(dst)?;
        self.expect_same_adapters(src, dst)?;
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

    /// Release every sequence except `seq`, like [`backstitch_kv::Memory::seq_keep`].
    ///
    /// # Errors
    /// [`Error::Sequence`] if it does not exist.
    pub fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error> {
        self.history(seq)?;
        self.memory.seq_keep(seq)?;
        for id in (0..self.params.n_seq_max).map(SeqId).filter(|&id| id != seq) {
            self.sequences[id.index()] = None;
            self.runner.adapters.assign(id, AdapterSet::EMPTY);
            self.outputs.forget(id);
        }
        Ok(())
    }

    /// Move the tokens of `range` by `delta` positions (K-shift), like
    /// [`backstitch_kv::Memory::seq_add`].
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist, and those of
    /// [`backstitch_kv::Memory::seq_add`].
    pub fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error> {
        self.history(seq)?;
        let touches = delta != 0 && self.memory.has_seen(seq, &range);
        self.memory.seq_add(seq, range, delta)?;
        if touches {
            self.edited(seq);
        }
        Ok(())
    }

    /// Divide the positions of `range`, like [`backstitch_kv::Memory::seq_div`].
    ///
    /// # Errors
    /// [`Error::Sequence`] if `seq` does not exist, and those of
    /// [`backstitch_kv::Memory::seq_div`].
    pub fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error> {
        self.history(seq)?;
        let touches = divisor != 1 && self.memory.has_seen(seq, &range);
        self.memory.seq_div(seq, range, divisor)?;
        if touches {
            self.edited(seq);
        }
        Ok(())
    }

    /// Record a change of `seq` that its tokens do not describe.
    fn edited(&mut self, seq: SeqId) {
        self.outputs.forget(seq);
        let left = self.left(seq);
        if let Some(history) = self.history_mut(seq) {
            match left {
                Left::Nothing => history.clear(),
                Left::Something => history.edit(),
            }
        }
    }

    /// Return the first and the last position of `seq`; `None` if it is empty or does not exist.
    pub fn seq_range(&self, seq: SeqId) -> Option<(Pos, Pos)> {
        self.history(seq).ok()?;
        Some((self.memory.seq_pos_min(seq)?, self.memory.seq_pos_max(seq)?))
    }

    /// Release all sequences.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.sequences.fill_with(|| None);
        (0..self.params.n_seq_max).for_each(|id| self.runner.adapters.assign(SeqId(id), AdapterSet::EMPTY));
        self.outputs.clear();
    }
}
