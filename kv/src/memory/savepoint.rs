//! Savepoints: several plans and rollbacks that are committed together or undone together.

use super::Memory;
use super::plan::Plan;
use super::rewind::Rewind;
use crate::batch::Batch;
use crate::cache::operation::{Op, Pass};
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::reserve;
use crate::rollback::HeldEnd;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};

const ALL: Range<Pos> = Pos::ZERO..Pos::MAX;

/// The end of a sequence at the time of the savepoint.
#[derive(Debug)]
struct End {
    seq: SeqId,
    pos: Pos,
    /// Checkpoint of this end, which other ends can share; `None` if the end needs none.
    held: Option<HeldEnd>,
}

/// The undo log of a group of sequences, from its creation until it is committed or dropped.
///
/// [`Memory::savepoint`] makes it. Plans prepared through a savepoint are committed one by one;
/// dropping the savepoint undoes all of them, and [`Savepoint::commit`] keeps them. Nothing is
/// copied: the ends of its sequences become checkpoints, and a sequence that is rolled back shares
/// its blocks and states with a spare sequence that only savepoints use. Undoing never runs the
/// model and cannot fail.
///
/// A leaked savepoint leaves its ends pinned and the spare sequence filled; the next savepoint
/// clears that sequence.
///
/// # Example
/// ```
/// use backstitch_core::cell::CellType;
/// use backstitch_kv::{
///     AttentionLayer, AttentionSpec, Batch, LayerSpec, Memory, Params, Pos, SeqId, Token, Wanted,
/// };
///
/// let layer = AttentionLayer { n_head_kv: 1, d_k: 4, d_v: 4, ..AttentionLayer::default() };
/// let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
/// let mut memory = Memory::new(&layers, &Params::default().n_ctx(256).n_batch(64))?;
///
/// let seq = SeqId(0);
/// let mut savepoint = memory.savepoint(&[seq])?;
/// for start in [0, 64] {
///     let mut batch = Batch::new();
///     batch.extend(seq, Pos(start), &[Token(5); 64], Wanted::None)?;
///     let mut plan = savepoint.prepare(&batch, 64)?;
///     while plan.next_ubatch().is_some() {} // compute it
///     plan.commit()?;
/// }
/// assert_eq!(savepoint.seq_pos_max(seq), Some(Pos(127)));
/// drop(savepoint); // something went wrong
/// assert_eq!(memory.seq_pos_max(seq), None);
/// # Ok::<(), backstitch_kv::Error>(())
/// ```
#[must_use = "dropping a savepoint undoes what came after it"]
pub struct Savepoint<'m> {
    memory: &'m mut Memory,
    ends: Vec<End>,
    kept: Option<Kept>,
}

/// A rolled-back sequence whose former content is in the spare sequence.
#[derive(Clone, Copy, Debug)]
struct Kept {
    seq: SeqId,
    /// True if dropping the former content frees the cells that the rollback takes again.
    frees_cells: bool,
}

impl fmt::Debug for Savepoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Savepoint").field("ends", &self.ends).field("kept", &self.kept).finish()
    }
}

impl Memory {
    /// Make a savepoint, so that everything appended to `seqs` from now on can be undone. Sequences
    /// that are rolled back through [`Savepoint::rewind`] need not be listed.
    ///
    /// # Errors
    /// - [`Error::UnknownSequence`] if there is no such sequence.
    /// - [`Error::Pinned`] if an end needs a checkpoint and all of them are pinned.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn savepoint(&mut self, seqs: &[SeqId]) -> Result<Savepoint<'_>, Error> {
        seqs.iter().try_for_each(|seq| self.check_seq(*seq))?;
        self.undo();
        self.empty(self.spare());
        // Dropping it on an error unpins the ends so far.
        let mut savepoint = Savepoint { memory: self, ends: Vec::new(), kept: None };
        for &seq in seqs {
            if savepoint.ends.iter().all(|end| end.seq != seq) {
                reserve::for_more(&mut savepoint.ends, 1)?;
                let pos = savepoint.memory.end(seq);
                let Memory { checkpoints, caches, .. } = &mut *savepoint.memory;
                let held = checkpoints.hold(seq, pos, caches)?;
                savepoint.ends.push(End { seq, pos, held });
            }
        }
        Ok(savepoint)
    }

    /// Make a savepoint for a batch of any length, whose pieces are then prepared one by one.
    ///
    /// The whole batch is checked first: every token follows the last of its sequence, and there
    /// are cells for all of them. Other shortages, such as a block that sequences cannot share, are
    /// found when the piece in question is prepared.
    ///
    /// # Errors
    /// Those of [`Memory::prepare`] and of [`Memory::savepoint`].
    pub fn savepoint_for(&mut self, batch: &Batch) -> Result<Savepoint<'_>, Error> {
        self.undo();
        batch.check(u32::MAX, self.n_seq_max())?;
        self.check_order(batch, Pass::Decode)?;
        self.caches.check_cells(batch)?;
        self.savepoint(batch.all_seqs())
    }

    /// Return the sequence that only savepoints use; it follows those of callers.
    fn spare(&self) -> SeqId {
        SeqId(self.n_seq_max())
    }
}

impl Savepoint<'_> {
    /// Prepare a batch like [`Memory::prepare`].
    ///
    /// # Errors
    /// Those of [`Memory::prepare`].
    pub fn prepare<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error> {
        self.memory.prepare(batch, n_ubatch)
    }

    /// Prepare a rollback like [`Memory::rewind`] that the savepoint can undo. A savepoint keeps
    /// the former content of one sequence.
    ///
    /// Tokens appended after the rollback take cells beside the former ones, except in blocks
    /// before `pos`.
    ///
    /// # Errors
    /// - Those of [`Memory::rewind`].
    /// - [`Error::Occupied`] if the savepoint already keeps another sequence.
    pub fn rewind(&mut self, seq: SeqId, pos: Pos, n_ubatch: usize) -> Result<Rewind<'_>, Error> {
        self.memory.check_seq(seq)?;
        if self.kept.is_none_or(|kept| kept.seq != seq) {
            let spare = self.memory.spare();
            if self.kept.is_some() {
                return Err(Error::Occupied { seq: spare });
            }
            let frees_cells = !self.memory.caches.shares_cells(seq, pos);
            self.memory.run(Op::Copy { src: seq, dst: spare, range: ALL })?;
            self.memory.checkpoints.hold_copy(seq, spare);
            self.kept = Some(Kept { seq, frees_cells });
        }
        self.memory.rewind(seq, pos, n_ubatch)
    }

    /// Drop the former content of the rolled-back sequence if that frees cells. The sequence then
    /// stays as it is now, whether the savepoint is committed or not. Return false, and keep the
    /// content, if other sequences share those cells.
    pub fn make_room(&mut self) -> bool {
        let frees_cells = self.kept.is_some_and(|kept| kept.frees_cells);
        if frees_cells {
            self.release();
        }
        frees_cells
    }

    /// Drop the former content of the rolled-back sequence, and its end.
    fn release(&mut self) {
        let released = self.kept.take();
        let at = self.ends.iter().position(|end| released.is_some_and(|kept| kept.seq == end.seq));
        // The spare sequence has the end in its list until it is emptied.
        if let Some(end) = at.map(|at| self.ends.swap_remove(at)) {
            self.unpin_end(&end);
        }
        self.memory.empty(self.memory.spare());
    }

    /// Keep everything that was committed since the savepoint was made.
    pub fn commit(mut self) {
        self.release();
        while let Some(end) = self.ends.pop() {
            self.unpin_end(&end);
        }
        // The ends were pinned whatever the budget; the next savepoint needs the same room.
        let Memory { checkpoints, caches, .. } = &mut *self.memory;
        checkpoints.keep_to_budget(caches);
    }

    /// Release an end that was taken from the list; the last one of those that share a checkpoint
    /// unpins it if the savepoint pinned it.
    fn unpin_end(&mut self, end: &End) {
        let Memory { checkpoints, caches, .. } = &mut *self.memory;
        checkpoints.end_hold(end.seq);
        let Some(HeldEnd { id, is_new, .. }) = end.held else { return };
        match self.ends.iter_mut().filter_map(|other| other.held.as_mut()).find(|held| held.id == id) {
            Some(other) => other.is_new |= is_new,
            None => checkpoints.release(id, end.pos, is_new, caches),
        }
    }

    /// Return its former content to the rolled-back sequence.
    fn give_back(&mut self) {
        let Some(Kept { seq, .. }) = self.kept.take() else { return };
        let spare = self.memory.spare();
        // The lists have room for the content that was in them.
        self.memory.run_surely(Op::Remove { seq, range: ALL });
        self.memory.run_surely(Op::Copy { src: spare, dst: seq, range: ALL });
        self.memory.empty(spare);
    }
}

impl Deref for Savepoint<'_> {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        self.memory
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        self.memory.undo();
        self.give_back();
        while let Some(end) = self.ends.pop() {
            let Memory { checkpoints, caches, .. } = &mut *self.memory;
            end.held.iter().for_each(|held| checkpoints.cut_behind(end.seq, held.id, caches));
            // Ends are checkpoints: returning to one replays nothing.
            let back = self.memory.rewind(end.seq, end.pos, 1).and_then(Rewind::commit);
            debug_assert!(back.is_ok(), "{back:?}");
            self.unpin_end(&end);
            let Memory { checkpoints, caches, .. } = &mut *self.memory;
            for held in end.held.iter().filter(|held| held.is_made) {
                checkpoints.drop_end(end.seq, held.id, caches);
            }
        }
    }
}
