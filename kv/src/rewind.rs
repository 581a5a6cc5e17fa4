//! Going back: what it takes, and doing it.

use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::memory::{Hybrid, Restore};
use crate::plan::Ubatch;
use crate::split::Span;
use crate::timeline::Route;
use core::ops::Range;

/// A way back that is prepared. Replay its ubatches, then commit.
///
/// Dropping it leaves the sequence as it was.
///
/// # Example
/// ```
/// use backstitch_kv::{Error, Hybrid, Memory, Pos, SeqId};
///
/// /// Goes back as far as that takes no evaluation; returns how many tokens are left to evaluate again.
/// fn back(memory: &mut Hybrid, seq: SeqId, pos: Pos) -> Result<u32, Error> {
///     let mut rewind = memory.rewind(seq, pos, 64)?;
///     let route = rewind.route();
///     while let Some(mut ubatch) = rewind.next_ubatch() {
///         // Step the states of each recurrent layer through `ubatch.states(layer, part)`'s inputs.
///         let _ = ubatch.states(0, 0);
///     }
///     rewind.commit()?;
///     Ok(route.reevaluated)
/// }
/// ```
#[must_use = "dropping a way back undoes it"]
pub struct Rewind<'a> {
    memory: &'a mut Hybrid,
    seq: SeqId,
    route: Route,
    restore: Restore,
    started: u32,
}

/// Positions of a sequence that can be gone back to in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stretch {
    /// The positions.
    pub positions: Range<Pos>,
    /// The checkpoint that they start from; the positions themselves if they are held, 0 if there is none.
    pub restored_from: Pos,
    /// What getting there from the checkpoint takes.
    pub means: Means,
}

impl Stretch {
    /// Return a stretch made up by the caller: to show one, say.
    pub fn new(positions: Range<Pos>, restored_from: Pos, means: Means) -> Self {
        Stretch { positions, restored_from, means }
    }
}

/// What going back takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Means {
    /// Nothing: the position is held.
    Held,
    /// Recurrences are stepped from the journal; nothing is evaluated.
    Replayed,
    /// Tokens are evaluated again.
    Evaluated,
}

impl Route {
    /// What this route takes.
    pub fn means(&self) -> Means {
        match self {
            Route { reevaluated: 1.., .. } => Means::Evaluated,
            Route { replayed: 1.., .. } => Means::Replayed,
            _ => Means::Held,
        }
    }
}

impl<'a> Rewind<'a> {
    pub(crate) fn new(memory: &'a mut Hybrid, seq: SeqId, route: Route, restore: Restore) -> Rewind<'a> {
        Rewind { memory, seq, route, restore, started: 0 }
    }

    /// What going back takes. If tokens have to be evaluated again, the sequence will end at `restored_from`.
    pub fn route(&self) -> Route {
        self.route
    }

    /// The next tokens to replay; `None` after the last.
    pub fn next_ubatch(&mut self) -> Option<Ubatch<'_>> {
        let Restore { ref rows, n_ubatch, .. } = self.restore;
        let start = self.started * n_ubatch;
        if start >= rows.len() as u32 {
            return None;
        }
        let end = (start + n_ubatch).min(rows.len() as u32);
        let run = self.started as usize;
        self.started += 1;
        let span = Span { tokens: start as usize..end as usize, runs: run..run + 1 };
        Some(Ubatch { memory: self.memory, batch: None, span, number: run as u32 })
    }

    /// Takes the sequence back.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if not everything was replayed; then the sequence is as it was.
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
