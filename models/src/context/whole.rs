//! What takes several plans and still happens as a whole or not at all, also where a caller's pool unwinds: guards that put
//! things back when they are dropped.

use super::Context;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::{Batch, Memory, Pos, SeqId};

/// Where a sequence ended before a batch.
struct Held {
    seq: SeqId,
    end: Pos,
    /// Whether the pin is to be taken away.
    is_new: bool,
}

/// Holds the ends of a batch's sequences while its pieces are computed. Unless all were, they go back there.
pub(super) struct Whole<'a> {
    pub ctx: &'a mut Context,
    ends: Vec<Held>,
    pub is_done: bool,
}

impl<'a> Whole<'a> {
    pub fn hold(ctx: &'a mut Context, batch: &Batch) -> Result<Self, Error> {
        let mut whole = Whole { ctx, ends: Vec::new(), is_done: false };
        for &seq in (0..batch.len()).flat_map(|index| batch.seqs(index)) {
            if whole.ends.iter().all(|end| end.seq != seq) {
                let refused = |_| Error::OutOfMemory { what: "ends of sequences", n_bytes: 16 };
                whole.ends.try_reserve(1).map_err(refused)?;
                let is_new = whole.ctx.memory.hold(seq)?;
                let end = whole.ctx.end(seq);
                whole.ends.push(Held { seq, end, is_new });
            }
        }
        Ok(whole)
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        for &Held { seq, end, is_new } in &self.ends {
            if !self.is_done {
                // Held positions take no computation, so that this cannot fail.
                let back = self.ctx.rewind(seq, end);
                debug_assert!(back.is_ok(), "{back:?}");
            }
            if is_new {
                let unpinned = self.ctx.memory.unpin(seq, end);
                debug_assert!(unpinned.is_ok(), "{unpinned:?}");
            }
        }
    }
}

/// Keeps what a sequence holds aside while tokens of it are evaluated again. Unless it was given up, the sequence gets it
/// back.
pub(super) struct Aside<'a> {
    pub ctx: &'a mut Context,
    seq: SeqId,
    end: Pos,
    is_kept: bool,
}

impl<'a> Aside<'a> {
    pub fn put(ctx: &'a mut Context, seq: SeqId) -> Result<Self, Error> {
        let (end, aside) = (ctx.end(seq), ctx.aside());
        ctx.memory.seq_cp(seq, aside, Pos::ZERO..Pos::MAX)?;
        Ok(Aside { ctx, seq, end, is_kept: true })
    }

    /// Makes room: the sequence stays as it is now.
    pub fn give_up(&mut self) {
        self.is_kept = false;
        let aside = self.ctx.aside();
        let emptied = self.ctx.memory.seq_rm(aside, Pos::ZERO..Pos::MAX);
        debug_assert!(emptied.is_ok(), "{emptied:?}");
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            let (all, aside) = (Pos::ZERO..Pos::MAX, self.ctx.aside());
            let emptied = self.ctx.memory.seq_rm(self.seq, all.clone());
            // There is room in its lists for what was in them.
            let back = self.ctx.memory.seq_cp(aside, self.seq, all);
            debug_assert!(emptied.is_ok() && back.is_ok(), "{emptied:?}, {back:?}");
            self.give_up();
        }
        let end = self.ctx.end(self.seq);
        if end < self.end {
            self.ctx.cut_history(self.seq, end);
        }
    }
}

impl Context {
    /// The sequence that the memory has beyond those of callers.
    pub(super) fn aside(&self) -> SeqId {
        SeqId(self.params.n_seq_max)
    }
}
