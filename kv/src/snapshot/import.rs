//! Import: sequences of a snapshot put into a memory.
//!
//! An import goes through these steps, each in a module of its own, and any of them may refuse
//! without a visible change:
//!
//! 1. `fit`: match the groups of the snapshot with those of the memory.
//! 2. `choice`: choose the cells and checkpoints that there is space for.
//! 3. `reserve`: take blocks, state slots and journal rows that are free.
//! 4. `fill`: write the bytes, with conversion of the element type if it is allowed.
//!
//! Committing then replaces the former content of the sequences; dropping the import frees the
//! reservation.

mod choice;
mod fill;
mod fit;
mod reserve;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::external::{Home, Placement};
use crate::ids::SeqId;
use crate::memory::Memory;
use crate::snapshot::export::Place;
use crate::snapshot::{Snapshot, Source};
use alloc::vec::Vec;
use backstitch_core::pool::{Inline, Pool};
use core::fmt;

pub use fit::{Conversion, Fit};

/// Reason for which an import failed; the memory has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError<E> {
    /// The snapshot is invalid, or the memory cannot hold it.
    #[error(transparent)]
    Memory(#[from] Error),
    /// The source cannot provide the bytes.
    #[error(transparent)]
    Source(E),
}

/// A prepared import: sequences of a snapshot, ready to replace others.
///
/// [`Memory::import`] makes it. [`Import::commit`] makes the sequences visible and cannot fail;
/// dropping the import leaves no trace. If it is leaked, the next change of the memory frees what
/// it had reserved.
pub struct Import<'a> {
    memory: &'a mut Memory,
    fit: Fit,
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import").field("fit", &self.fit).finish_non_exhaustive()
    }
}

impl Import<'_> {
    /// Return the losses of the import: checkpoints left out and values converted.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    /// Return the blocks, slots and rows that the snapshot will occupy. An engine with a memory
    /// [without storage](Memory::without_storage) writes the bytes there before the commit; other
    /// memories have done so.
    pub fn placement(&self) -> &Placement {
        &self.memory.reservation.placement
    }

    /// Replace the former content of the sequences. Cannot fail. Pins and checkpoints that exceed
    /// the budget beside those of other sequences are unpinned and dropped now, and counted in
    /// [`Fit::n_unpinned`] and [`Fit::n_checkpoints_dropped`].
    pub fn commit(mut self) -> Fit {
        let Memory { reservation, caches, checkpoints, .. } = &mut *self.memory;
        let (n_unpinned, n_dropped) = core::mem::take(reservation).give(caches, checkpoints);
        self.fit.n_unpinned += n_unpinned;
        self.fit.n_checkpoints_dropped += n_dropped;
        self.fit
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        self.memory.undo();
    }
}

/// Sequences of a snapshot and their targets in a memory.
struct Request<'a> {
    snapshot: &'a Snapshot,
    /// Target of each sequence.
    seqs: &'a [SeqId],
    /// Groups of the memory, in the order of the snapshot's.
    places: Vec<Place>,
}

impl Memory {
    /// Prepare to replace the content of `seqs` with the sequences of `snapshot`, one each. Cells
    /// of another element type are converted if `convert` is true. Checkpoints and journal rows
    /// that a smaller memory cannot hold are left out; [`Import::fit`] counts them.
    ///
    /// Both the old and the new content occupy blocks until [`Import::commit`], and nothing visible
    /// changes before.
    ///
    /// # Errors
    /// [`ImportError::Source`] if `source` fails, and [`ImportError::Memory`] with one of these:
    ///
    /// - [`Error::Snapshot`] if the snapshot contradicts itself.
    /// - [`Error::Mismatch`] if the layers differ in number or size.
    /// - [`Error::CellType`] if element types differ and `convert` is false.
    /// - [`Error::Gone`] if the snapshot lacks cells that a layer of this memory retains.
    /// - [`Error::Full`] if blocks, states or checkpoints run out.
    /// - [`Error::Shape`] if the number of `seqs` is not that of the snapshot's sequences.
    /// - [`Error::RepeatedSequence`] or [`Error::UnknownSequence`] if `seqs` names one twice, or
    ///   one that does not exist.
    /// - [`Error::Unfollowed`] if the caller has not taken the changes of earlier operations.
    /// - [`Error::OutOfMemory`] if the allocator refuses.
    pub fn import<S: Source<Error: Send> + Sync>(
        &mut self,
        snapshot: &Snapshot,
        source: &S,
        seqs: &[SeqId],
        convert: bool,
    ) -> Result<Import<'_>, ImportError<S::Error>> {
        self.import_with(snapshot, source, seqs, convert, &Inline)
    }

    /// Import like [`Memory::import`], and write blocks of cells on all threads of `pool`.
    ///
    /// # Errors
    /// Those of [`Memory::import`].
    pub fn import_with<S: Source<Error: Send> + Sync>(
        &mut self,
        snapshot: &Snapshot,
        source: &S,
        seqs: &[SeqId],
        convert: bool,
        pool: &dyn Pool,
    ) -> Result<Import<'_>, ImportError<S::Error>> {
        self.undo();
        self.check_followed()?;
        snapshot.check()?;
        self.check_targets(snapshot, seqs)?;
        let request = Request { snapshot, seqs, places: self.match_groups(snapshot, convert)? };
        let choice = self.choose(&request)?;
        // Dropping the import, after an error too, frees the reservation.
        let mut import = Import { fit: choice.fit(), memory: self };
        import.memory.reserve_import(&choice)?;
        if import.memory.home != Home::Elsewhere {
            import.fit.conversion = import.memory.fill_import(&request, source, pool)?;
        }
        Ok(import)
    }

    /// Check that there is one existing target per sequence of the snapshot, each named once.
    fn check_targets(&self, snapshot: &Snapshot, seqs: &[SeqId]) -> Result<(), Error> {
        let (found, wanted) = (seqs.len() as u64, snapshot.sequences.len() as u64);
        if found != wanted {
            return Err(Error::Shape { what: "sequences to restore", found, wanted });
        }
        for (i, &seq) in seqs.iter().enumerate() {
            self.check_seq(seq)?;
            if seqs[..i].contains(&seq) {
                return Err(Error::RepeatedSequence { index: i as u32, seq });
            }
        }
        Ok(())
    }
}
