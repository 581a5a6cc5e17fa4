//! Rewinds: prepared rollbacks, to be replayed and committed.

use super::Memory;
use crate::batch::split::Span;
use crate::cache::operation::Restore;
use crate::error::Error;
use crate::ids::SeqId;
use crate::memory::plan::Ubatch;
use crate::rollback::Route;

/// A prepared rollback of one sequence: journal rows to replay, then a commit.
///
/// [`Memory::rewind`] makes it. A rewind never runs the model: if tokens have to be re-evaluated,
/// it returns to the checkpoint before the wanted position, and the caller appends the rest.
/// Dropping it leaves the sequence as it was.
///
/// # Example
/// ```
/// use backstitch_kv::{Error, Memory, Pos, SeqId};
///
/// /// Roll back as far as that takes no evaluation; return the number of tokens to re-evaluate.
/// fn back(memory: &mut Memory, seq: SeqId, pos: Pos) -> Result<u32, Error> {
///     let mut rewind = memory.rewind(seq, pos, 64)?;
///     let route = rewind.route();
///     while let Some(mut ubatch) = rewind.next_ubatch() {
///         // Step each recurrent layer through the inputs of `ubatch.states(layer, i)`.
///         let _ = ubatch.states(0, 0);
///     }
///     rewind.commit()?;
///     Ok(route.reevaluated)
/// }
/// ```
#[must_use = "dropping a rewind undoes it"]
pub struct Rewind<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) seq: SeqId,
    pub(super) route: Route,
    pub(super) restore: Restore,
    pub(super) started: usize,
}

impl Rewind<'_> {
    /// Return the rollback cost. If tokens have to be re-evaluated, the sequence will end at
    /// `restored_from`.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Return the next journal rows to replay; `None` after the last.
    pub fn next_ubatch(&mut self) -> Option<Ubatch<'_>> {
        let number = self.started;
        let segment = self.memory.caches.states.as_ref()?.segments.get(number)?;
        let tokens = segment.start as usize..segment.end as usize;
        self.started += 1;
        let span = Span { tokens, segments: number..number + 1 };
        Some(Ubatch { memory: self.memory, batch: None, span, number: number as u32 })
    }

    /// Make the rollback visible.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if journal rows were left to replay; the sequence is then as it was.
    pub fn commit(self) -> Result<(), Error> {
        let n_ubatch = self.memory.caches.states.as_ref().map_or(0, |states| states.segments.len());
        if self.started < n_ubatch {
            return Err(Error::Unfinished { started: self.started as u32, n_ubatch: n_ubatch as u32 });
        }
        self.memory.open = false;
        self.memory.caches.roll_back(self.seq, &self.restore);
        self.memory.cut_checkpoints(self.seq);
        Ok(())
    }
}

impl Drop for Rewind<'_> {
    fn drop(&mut self) {
        self.memory.undo();
    }
}
