//! Sessions of several branches, for `chat`: branching, pins, and files that hold all branches.

use super::{Session, begin};
use crate::args::{ContextArgs, SamplingArgs};
use crate::error::Error;
use crate::output::one_line;
use crate::progress::Progress;
use crate::saved::{self, rotation};
use backstitch_kv::storage::{Saved, Scope, Watch};
use backstitch_kv::{Error as MemoryError, Pos, SeqId};
use backstitch_models::sampler::Chain;
use backstitch_models::session;
use backstitch_models::{Error as EngineError, Model, SaveOptions};
use std::path::Path;

/// Number of sequences of a session with branches. Branches beyond them are kept as messages alone.
pub const N_SEQS: u32 = 4;

impl Session {
    /// Make a session that can have several branches, with one that is empty.
    ///
    /// # Errors
    /// The errors of [`Session::new`].
    pub fn with_branches(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
    ) -> Result<Self, Error> {
        let (ctx, settings) = begin(model, context, sampling, N_SEQS)?;
        Ok(Self::of(session::Session::new(ctx, &settings)?))
    }

    /// Restore all branches in a file. Returns the bytes that were saved beside them, too.
    ///
    /// # Errors
    /// The errors of [`Session::restore`], and [`Error::Refused`] for a file of a single text.
    pub fn restore_branches(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
        path: &Path,
    ) -> Result<(Self, Vec<u8>), Error> {
        let file = saved::open(path)?;
        let container = saved::container(path, &file)?;
        if container.scope() == Scope::Sequence {
            let name = one_line(&path.display().to_string());
            let text = "holds a text and no conversation; `backstitch run --restore` continues it";
            return Err(Error::Refused(format!("{name} {text}")));
        }
        let (mut ctx, settings) = begin(model, context, sampling, N_SEQS)?;
        rotation::expect(path, &container, &ctx)?;
        let progress = Progress::endless("restoring");
        let mut restored = ctx.restore_all(path).map_err(|error| Error::of_saved(path, error))?;
        drop(progress);
        if sampling.seed >= 0 {
            restored.sequences.iter_mut().for_each(|sequence| sequence.sampler = None);
        }
        let chain = Chain::new(model.hparams().n_vocab, &settings.suppress(model.vocab()));
        let session = session::Session::adopt(ctx, &chain, &restored)?;
        Ok((Self::of(session), restored.metadata))
    }

    /// Save all branches to a file, with `metadata` beside them.
    ///
    /// # Errors
    /// The errors of [`Session::save`].
    pub fn save_branches(
        &mut self,
        path: &Path,
        metadata: &[u8],
        watch: &dyn Watch,
    ) -> Result<Saved, EngineError> {
        self.inner.save_all_watched(path, &SaveOptions::default().metadata(metadata), watch)
    }

    /// Return the id of the current branch.
    pub fn current(&self) -> SeqId {
        self.inner.current()
    }

    /// Return the ids of all branches.
    pub fn branches(&self) -> Vec<SeqId> {
        self.inner.branches()
    }

    /// Make a branch with the tokens of the current one. Returns none if all sequences, or all
    /// cells, are in use.
    ///
    /// # Errors
    /// [`Error::Engine`] if there is no memory for it.
    pub fn branch(&mut self) -> Result<Option<SeqId>, Error> {
        match self.inner.branch() {
            Ok(branch) => Ok(Some(branch)),
            Err(EngineError::TooManySequences { .. }) => Ok(None),
            // The last token needs a cell before the branch can be copied.
            Err(EngineError::Memory(MemoryError::Full { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Make a branch the current one.
    ///
    /// # Errors
    /// [`Error::Engine`] if there is no such branch.
    pub fn switch(&mut self, branch: SeqId) -> Result<(), Error> {
        self.inner.switch(branch)?;
        Ok(())
    }

    /// Remove a branch.
    ///
    /// # Errors
    /// [`Error::Engine`] if there is no such branch, or no other.
    pub fn remove(&mut self, branch: SeqId) -> Result<(), Error> {
        Ok(self.inner.remove(branch)?)
    }

    /// Pin the end of the current branch, so that a rollback reaches it at once. If the pins use up
    /// the memory of checkpoints, the earliest of `pins` give way. Without any memory for pins, a
    /// rollback re-evaluates some tokens, so that is no error.
    ///
    /// # Errors
    /// [`Error::Engine`] if the last token cannot be evaluated.
    pub fn pin(&mut self, pins: &mut Vec<Pos>) -> Result<(), Error> {
        pins.retain(|pin| *pin < self.inner.pos());
        loop {
            match self.inner.pin() {
                Ok(pos) => pins.push(pos),
                Err(EngineError::Memory(MemoryError::Pinned { .. })) if !pins.is_empty() => {
                    let first = pins.remove(0);
                    self.inner.unpin(first)?;
                    continue;
                }
                // Without room for the last token there is no end to pin.
                Err(EngineError::Memory(MemoryError::Pinned { .. } | MemoryError::Full { .. })) => {}
                Err(EngineError::OutOfMemory { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
    }

    /// Return the lines of `/stats` about the context: tokens, memory and checkpoints.
    ///
    /// # Errors
    /// [`Error::Engine`] if the memory cannot be surveyed.
    pub fn usage(&self) -> Result<Vec<String>, Error> {
        let ctx = self.inner.context();
        let survey = ctx.survey(self.inner.current())?;
        let pinned = survey.checkpoints.iter().filter(|checkpoint| checkpoint.is_pinned).count();
        Ok(vec![
            format!("context: {} of {} tokens", self.tokens().len(), self.n_ctx()),
            format!("checkpoints: {}, {pinned} of them pinned at ends of messages", survey.checkpoints.len()),
            crate::memory::line(ctx),
        ])
    }
}
