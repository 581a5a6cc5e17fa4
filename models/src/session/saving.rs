//! Sessions in state files, and prompts from a prompt cache.

use super::Session;
use crate::context::{Recalled, SaveOptions};
use crate::error::Error;
use backstitch_kv::storage::prompt_cache::{EvaluatedPrefix, PromptCache};
use backstitch_kv::storage::{Saved, Watch};
use backstitch_kv::{Pos, Token};
use std::path::Path;

impl Session {
    /// Save the current branch, with its samplers, to the file at `path`, synchronised to disk:
    /// [`Session::save_with`]. A file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Session::save_with`].
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_with(path, &SaveOptions::default())
    }

    /// Save the current branch, with its samplers, to the file at `path`:
    /// [`Context::save_with`](crate::Context::save_with). A file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Context::save_with`](crate::Context::save_with) and
    /// [`Session::evaluate_pending`].
    pub fn save_with(&mut self, path: impl AsRef<Path>, options: &SaveOptions<'_>) -> Result<Saved, Error> {
        self.save_watched(path, options, &())
    }

    /// Save the current branch, as [`Session::save_with`]. While the file waits for another
    /// process, `watch` may end the waiting; a file at `path` then stays.
    ///
    /// # Errors
    /// Those of [`Context::save_watched`](crate::Context::save_watched) and
    /// [`Session::evaluate_pending`].
    pub fn save_watched(
        &mut self,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
        watch: &dyn Watch,
    ) -> Result<Saved, Error> {
        self.evaluate_pending()?;
        let seq = self.current();
        let states = [(seq, self.current.state())];
        self.ctx.save_watched(Some(seq), path, &SaveOptions { samplers: &states, ..*options }, watch)
    }

    /// Save all branches, each with its samplers, to the file at `path`, synchronised to disk:
    /// [`Session::save_all_with`]. A file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Session::save_all_with`].
    pub fn save_all(&mut self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_all_with(path, &SaveOptions::default())
    }

    /// Save all branches, each with its samplers, to the file at `path`:
    /// [`Context::save_all_with`](crate::Context::save_all_with). A file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Context::save_all_with`](crate::Context::save_all_with) and
    /// [`Session::evaluate_pending`].
    pub fn save_all_with(
        &mut self,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
    ) -> Result<Saved, Error> {
        self.save_all_watched(path, options, &())
    }

    /// Save all branches, as [`Session::save_all_with`]. While the file waits for another process,
    /// `watch` may end the waiting; a file at `path` then stays.
    ///
    /// # Errors
    /// Those of [`Context::save_watched`](crate::Context::save_watched) and
    /// [`Session::evaluate_pending`].
    pub fn save_all_watched(
        &mut self,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
        watch: &dyn Watch,
    ) -> Result<Saved, Error> {
        let states = self.states()?;
        self.ctx.save_watched(None, path, &SaveOptions { samplers: &states, ..*options }, watch)
    }

    /// Set the current branch to the longest prefix of `tokens` that the prompt cache `cache` has:
    /// [`Context::recall`](crate::Context::recall). Evaluate the rest with [`Session::set_tokens`]
    /// or [`Session::feed`].
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::BeyondPositions`] or [`Error::Token`], before anything is
    /// rolled back; those of [`Session::rollback`]. Those of
    /// [`Context::recall`](crate::Context::recall); the branch is empty then.
    pub fn recall(&mut self, cache: &PromptCache, tokens: &[Token]) -> Result<Recalled, Error> {
        self.check_fit(Pos::ZERO, tokens)?;
        self.rollback(Pos::ZERO)?;
        let seq = self.current();
        let recalled = self.ctx.recall(seq, cache, tokens)?;
        debug_assert!(recalled.n_tokens <= tokens.len(), "a prefix of the tokens");
        self.note(tokens.get(..recalled.n_tokens).unwrap_or_default());
        Ok(recalled)
    }

    /// Return an entry for the prompt cache `cache` of the tokens of the current branch that it
    /// lacks: [`Context::remember`](crate::Context::remember).
    ///
    /// # Errors
    /// Those of [`Context::remember`](crate::Context::remember) and [`Session::evaluate_pending`].
    pub fn remember(&mut self, cache: &PromptCache) -> Result<Option<EvaluatedPrefix<'_>>, Error> {
        self.evaluate_pending()?;
        self.ctx.remember(self.current.seq, cache)
    }
}
