//! States in files.

use super::{RestoreOptions, Restored, SaveOptions};
use crate::context::Context;
use crate::error::Error;
use alloc::boxed::Box;
use alloc::vec;
use backstitch_kv::SeqId;
use backstitch_kv::storage::disk::RealDisk;
use backstitch_kv::storage::{self, Saved, Scope, StateFile, Watch, Writer};
use std::path::Path;

impl Context {
    /// Save `seq` to the file at `path`, synchronised, with nothing beside:
    /// [`Context::save_with`]. Any other file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Context::save_with`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Context, Model, Params, Token};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default().n_ctx(128).n_seq_max(2))?;
    /// let a = ctx.sequence()?;
    /// ctx.append(a, &[Token(5), Token(6), Token(7)])?;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.bst");
    /// ctx.save(a, &path)?;
    /// let b = ctx.restore(&path)?.seq(); // beside the live one, here or in another process
    /// assert_eq!(ctx.logits_at_hand(b), ctx.logits_at_hand(a));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, seq: SeqId, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_with(seq, path, &SaveOptions::default())
    }

    /// Save `seq` to the file at `path`, so that whatever happens meanwhile, it holds the old
    /// state or the new one.
    ///
    /// A state of the same model that is there already is continued: only what is new is written,
    /// until more than half of the file would be of no use any more. Any other file at `path`, of
    /// whatever kind, is replaced without a question; [`Saved::replaced`] tells.
    ///
    /// # Errors
    /// [`Error::Sequence`]; [`Error::State`] with path and operation where the disk refuses. The
    /// file then holds the old state; if synchronising its folder failed, the new one.
    pub fn save_with(
        &self,
        seq: SeqId,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
    ) -> Result<Saved, Error> {
        self.save_watched(Some(seq), path, options, &())
    }

    /// Save `seq`, or all sequences for `None`, as [`Context::save_with`] and
    /// [`Context::save_all_with`], with somebody who may stop the waiting for others and keep what
    /// is at `path`.
    ///
    /// # Errors
    /// Those of [`Context::save_with`]; [`storage::Error::NotReplaced`] in [`Error::State`] if
    /// `watch` says so.
    pub fn save_watched(
        &self,
        seq: Option<SeqId>,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
        watch: &dyn Watch,
    ) -> Result<Saved, Error> {
        let (seqs, scope) = match seq {
            Some(seq) => (vec![seq], Scope::Sequence),
            None => (self.live(), Scope::Context),
        };
        let content = self.content(&seqs, options)?;
        let sync = if options.sync { storage::Sync::Yes } else { storage::Sync::No };
        let header = self.state_header(scope);
        let fill = &mut |writer: &mut Writer<'_>| content.write(writer, &*self.pool);
        Ok(storage::save_watched(&RealDisk, path.as_ref(), header, sync, watch, fill)?)
    }

    /// Save all sequences to the file at `path`, synchronised, with nothing beside:
    /// [`Context::save_all_with`]. Any other file at `path` is replaced.
    ///
    /// # Errors
    /// [`Error::State`], as [`Context::save_with`].
    pub fn save_all(&self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_all_with(path, &SaveOptions::default())
    }

    /// Save all sequences to one file, with what they share once; otherwise as
    /// [`Context::save_with`]. Any other file at `path` is replaced.
    ///
    /// # Errors
    /// [`Error::State`], as [`Context::save_with`].
    pub fn save_all_with(&self, path: impl AsRef<Path>, options: &SaveOptions<'_>) -> Result<Saved, Error> {
        self.save_watched(None, path, options, &())
    }

    /// Restore a saved sequence beside those that there are: [`Context::restore_with`].
    ///
    /// # Errors
    /// Those of [`Context::restore_with`].
    pub fn restore(&mut self, path: impl AsRef<Path>) -> Result<Restored, Error> {
        self.restore_with(path, &RestoreOptions::default())
    }

    /// Restore the sequence that [`Context::save`] saved in the file at `path`, as a new one
    /// beside those that there are: its logits are at hand, and it goes on with the same bits, and
    /// back to the same positions at once.
    ///
    /// The file is read straight to where its bytes belong, and each is checked after it has
    /// arrived, so nothing that others do to the file meanwhile can do harm.
    ///
    /// # Errors
    /// [`Error::TooManySequences`]; [`Error::State`] if the file cannot be read; with its path
    /// inside [`Error::File`], what [`Context::state_read`] names. Nothing has changed then.
    pub fn restore_with(
        &mut self,
        path: impl AsRef<Path>,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let free = self.sequences.iter().position(Option::is_none);
        let id = free.ok_or(Error::TooManySequences { limit: self.params.n_seq_max })?;
        self.restore_file(path.as_ref(), Some(SeqId(id as u32)), options)
    }

    /// Restore what [`Context::save_all`] saved: [`Context::restore_all_with`].
    ///
    /// # Errors
    /// Those of [`Context::restore_all_with`].
    pub fn restore_all(&mut self, path: impl AsRef<Path>) -> Result<Restored, Error> {
        self.restore_all_with(path, &RestoreOptions::default())
    }

    /// Restore what [`Context::save_all`] saved, in place of all that the context holds, as
    /// [`Context::state_read`].
    ///
    /// # Errors
    /// Those of [`Context::restore_with`]; [`Error::Sequence`] if the context has too few
    /// sequences.
    pub fn restore_all_with(
        &mut self,
        path: impl AsRef<Path>,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        self.restore_file(path.as_ref(), None, options)
    }

    fn restore_file(
        &mut self,
        path: &Path,
        seq: Option<SeqId>,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let file = StateFile::open(path)?;
        let container = file.container().map_err(Error::from);
        let restored = container.and_then(|container| self.take(&container, seq, options));
        restored.map_err(|error| match error {
            // The system's words name the file already.
            Error::State(storage::Error::File { .. } | storage::Error::Io(_)) => error,
            error => Error::File { path: path.into(), source: Box::new(error) },
        })
    }
}
