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
    memory: &'a mut Memory,
    seq: SeqId,
    route: Route,
    restore: Restore,
    started: u32,
}

impl<'a> Rewind<'a> {
    pub(crate) fn new(memory: &'a mut Memory, seq: SeqId, route: Route, restore: Restore) -> Rewind<'a> {
        Rewind { memory, seq, route, restore, started: 0 }
    }

    /// Return the rollback cost. If tokens have to be re-evaluated, the sequence will end at
    /// `restored_from`.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Return the next journal rows to replay; `None` after the last.
    pub fn next_ubatch(&mut self) -> Option<Ubatch<'_>> {
        let Restore { ref rows, n_ubatch, .. } = self.restore;
        let start = self.started * n_ubatch;
        if start >= rows.len() as u32 {
            return None;
        }
        let end = (start + n_ubatch).min(rows.len() as u32);
        let number = self.started as usize;
        self.started += 1;
        let span = Span { tokens: start as usize..end as usize, segments: number..number + 1 };
        Some(Ubatch { memory: self.memory, batch: None, span, number: number as u32 })
    }

    /// Make the rollback visible.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if journal rows were left to replay; the sequence is then as it was.
    pub fn commit(mut self) -> Result<(), Error> {
        let Restore { ref rows, n_ubatch, .. } = self.restore;
        let n_ubatch = (rows.len() as u32).div_ceil(n_ubatch.max(1));
        if self.next_ubatch().is_some() {
            return Err(Error::Unfinished { started: self.started - 1, n_ubatch });
        }
        self.memory.finish_rewind(self.seq, &self.restore);
        Ok(())
    }
}

impl Drop for Rewind<'_> {
    fn drop(&mut self) {
        self.memory.undo();
    }
}
