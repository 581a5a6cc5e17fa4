//! Taking sequences from an image: everything is checked, reserved and filled before anything that can be seen changes.
//!
//! Bytes go to blocks, slots and rows that nobody uses. Dropping what was staged gives them back; committing it gives them to their
//! sequences, in place of what these held.

mod choice;
mod fill;
mod fit;
mod reserve;
#[cfg(test)]
mod tests;

use super::Hybrid;
use super::cells::Given;
use super::recurrent::{Held, Tip};
use crate::error::Error;
use crate::ids::SeqId;
use crate::image::{Image, Source};
use crate::storage::Placement;
use crate::timeline::Line;
use alloc::vec::Vec;
use backstitch_core::pool::{Inline, Pool};
use core::fmt;

use fit::Matched;
pub use fit::{Conversion, Fit};
use reserve::Reserved;

/// Why sequences cannot be taken from an image; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageError<E> {
    /// The image is unsound or does not fit.
    Memory(Error),
    /// Its bytes cannot be had.
    Source(E),
}

impl<E> From<Error> for StageError<E> {
    fn from(error: Error) -> Self {
        StageError::Memory(error)
    }
}

impl<E: fmt::Display> fmt::Display for StageError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageError::Memory(error) => error.fmt(f),
            StageError::Source(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for StageError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        // The text is that of the error inside, so the chain goes on behind it.
        match self {
            StageError::Memory(error) => error.source(),
            StageError::Source(error) => error.source(),
        }
    }
}

/// What a part of the memory gets.
#[derive(Debug, Default)]
pub(super) struct PartStage {
    /// Which part.
    pub part: usize,
    /// Blocks taken.
    pub taken: Vec<u32>,
    pub sequences: Vec<(SeqId, Given)>,
    pub checkpoints: Vec<(u32, Given)>,
}

/// What is reserved and not yet visible.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub parts: Vec<PartStage>,
    /// State slots taken.
    pub slots: Vec<u32>,
    pub tips: Vec<(SeqId, Option<Tip>)>,
    pub held: Vec<(u32, Held)>,
    /// Checkpoints taken.
    pub checkpoints: Vec<u32>,
    pub lines: Vec<(SeqId, Line)>,
    /// Where all that lies.
    pub placement: Placement,
}

/// Where nothing lies.
static NOWHERE: Placement =
    Placement { caches: Vec::new(), blocks: Vec::new(), states: Vec::new(), journals: Vec::new() };

impl Stage {
    /// Begins what a part gets.
    pub fn part(&mut self, part: usize) -> &mut PartStage {
        let i = self.parts.len();
        self.parts.push(PartStage { part, ..PartStage::default() });
        &mut self.parts[i]
    }
}

/// Sequences of an image, ready to take the place of others. Dropping this leaves no trace of them; forgetting it
/// leaves none behind the next change of the memory, which holds all that was reserved.
pub struct Staged<'a> {
    memory: &'a mut Hybrid,
    fit: Fit,
}

impl fmt::Debug for Staged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged").field("fit", &self.fit).finish_non_exhaustive()
    }
}

impl Staged<'_> {
    /// How the image fits: what has to be left out or converted.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    /// Where blocks, states and journals of the image are to lie. An engine that keeps the bytes of a memory
    /// [without storage](Hybrid::without_storage) puts them there before the commit; any other memory has done so.
    pub fn placement(&self) -> &Placement {
        self.memory.staged.as_ref().map_or(&NOWHERE, |stage| &stage.placement)
    }

    /// Gives the sequences what was staged, in place of what they held. Cannot fail. What the budget for ways back does not pay for beside those
    /// of the other sequences goes now, and is counted among the checkpoints that were left out.
    pub fn commit(mut self) -> Fit {
        self.fit.n_checkpoints_dropped += self.memory.commit_stage();
        self.fit
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.memory.drop_stage();
    }
}

fn placement(matched: &[Matched], reserved: Reserved) -> Placement {
    let mut caches = alloc::vec![0; matched.len()];
    for Matched { place, group } in matched {
        caches[*group] = place.part as u32;
    }
    Placement { caches, blocks: reserved.blocks, states: reserved.slots, journals: reserved.rows }
}

impl Hybrid {
    /// Makes ready that the sequences of `image` take the place of `seqs`, one each. Cells of another type are converted where
    /// `convert` allows it. What a smaller memory cannot hold of the ways back is left out; [`Fit`] tells.
    ///
    /// Needs room for the new beside the old; with nothing visible changed until [`Staged::commit`].
    ///
    /// # Errors
    /// [`Error::Image`] if the image contradicts itself; [`Error::Mismatch`], [`Error::CellType`], [`Error::Gone`] if it is of
    /// another cache; [`Error::Full`] if there is no room; [`Error::Shape`] unless there are as many `seqs` as sequences, each
    /// once; and what `source` says.
    pub fn stage<S: Source + Sync>(
        &mut self,
        image: &Image,
        source: &S,
        seqs: &[SeqId],
        convert: bool,
    ) -> Result<Staged<'_>, StageError<S::Error>>
    where
        S::Error: Send,
    {
        self.stage_with(image, source, seqs, convert, &Inline)
    }

    /// As [`Hybrid::stage`], with blocks of cells filled on all threads of `pool`.
    ///
    /// # Errors
    /// As there.
    pub fn stage_with<S: Source + Sync>(
        &mut self,
        image: &Image,
        source: &S,
        seqs: &[SeqId],
        convert: bool,
        pool: &dyn Pool,
    ) -> Result<Staged<'_>, StageError<S::Error>>
    where
        S::Error: Send,
    {
        self.undo();
        self.check_followed()?;
        image.check()?;
        self.check_targets(image, seqs)?;
        let matched = self.match_groups(image, convert)?;
        let choice = self.choose(image, seqs, &matched)?;
        let mut fit = choice.fit(image);
        let reserved = self.reserve_stage(image, seqs, &matched, &choice)?;
        if self.home.own {
            match self.fill_stage(image, source, &matched, &reserved, pool) {
                Ok(conversion) => fit.conversion = conversion,
                Err(error) => {
                    self.drop_stage();
                    return Err(error);
                }
            }
        }
        if let Some(stage) = &mut self.staged {
            stage.placement = placement(&matched, reserved);
        }
        Ok(Staged { memory: self, fit })
    }

    fn check_targets(&self, image: &Image, seqs: &[SeqId]) -> Result<(), Error> {
        let (found, wanted) = (seqs.len() as u64, image.sequences.len() as u64);
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

    /// Makes visible what is staged; gives the number of its checkpoints that the budget did not pay for.
    fn commit_stage(&mut self) -> u32 {
        let Some(stage) = self.staged.take() else { return 0 };
        for PartStage { part, sequences, checkpoints, .. } in stage.parts {
            let Some(part) = self.parts.get_mut(part).and_then(|part| part.as_cells_mut()) else { continue };
            sequences.into_iter().for_each(|(seq, given)| part.give(seq, given));
            checkpoints.into_iter().for_each(|(id, given)| part.give_checkpoint(id, given));
        }
        if let Some(states) = self.parts.iter_mut().find_map(|part| part.as_states_mut()) {
            stage.tips.into_iter().for_each(|(seq, tip)| states.give(seq, tip));
            stage.held.into_iter().for_each(|(id, held)| states.give_checkpoint(id, held));
        }
        for (seq, line) in stage.lines {
            self.timeline.give(seq, line, &mut self.parts);
        }
        self.timeline.settle(&mut self.parts);
        stage.checkpoints.iter().filter(|&&id| !self.timeline.is_in_use(id)).count() as u32
    }

    /// Gives back what was reserved and not committed.
    pub(super) fn drop_stage(&mut self) {
        let Some(stage) = self.staged.take() else { return };
        for PartStage { part, taken, .. } in &stage.parts {
            if let Some(part) = self.parts.get_mut(*part).and_then(|part| part.as_cells_mut()) {
                taken.iter().for_each(|&block| part.pool_mut().give_back(block));
            }
        }
        if let Some(states) = self.parts.iter_mut().find_map(|part| part.as_states_mut()) {
            stage.slots.iter().for_each(|&slot| states.give_back(slot));
        }
        stage.checkpoints.iter().for_each(|&id| self.timeline.abandon(id));
    }
}
