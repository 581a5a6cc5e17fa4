//! Sessions in files, and prompts that were evaluated before.

use super::Session;
use crate::context::{Context, Recalled, RestoreOptions, Restored, SaveOptions};
use crate::error::Error;
use crate::sampler::Chain;
use backstitch_kv::state::{Saved, Watch};
use backstitch_kv::store::{Entry, Store};
use backstitch_kv::{Pos, Token};
use std::path::Path;

impl Session {
    /// Save the current branch, with its samplers, to the file at `path`, synchronised: [`Session::save_with`].
    /// Any other file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Session::save_with`].
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_with(path, &SaveOptions::default())
    }

    /// Save the current branch, with its samplers, to the file at `path`: [`Context::save_with`]. Any other
    /// file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Context::save_with`] and [`Session::settle`].
    pub fn save_with(&mut self, path: impl AsRef<Path>, options: &SaveOptions<'_>) -> Result<Saved, Error> {
        self.save_watched(path, options, &())
    }

    /// Save the current branch as [`Session::save_with`] does, with somebody who may stop the waiting for
    /// others and keep what is at `path`.
    ///
    /// # Errors
    /// Those of [`Context::save_watched`] and [`Session::settle`].
    pub fn save_watched(
        &mut self,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
        watch: &dyn Watch,
    ) -> Result<Saved, Error> {
        self.settle()?;
        let seq = self.current();
        let states = [(seq, self.here.state())];
        self.ctx.save_watched(Some(seq), path, &SaveOptions { samplers: &states, ..*options }, watch)
    }

    /// Save all branches, each with its samplers, to the file at `path`, synchronised:
    /// [`Session::save_all_with`]. Any other file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Session::save_all_with`].
    pub fn save_all(&mut self, path: impl AsRef<Path>) -> Result<Saved, Error> {
        self.save_all_with(path, &SaveOptions::default())
    }

    /// Save all branches, each with its samplers, to the file at `path`: [`Context::save_all_with`]. Any other
    /// file at `path` is replaced.
    ///
    /// # Errors
    /// Those of [`Context::save_all_with`] and [`Session::settle`].
    pub fn save_all_with(
        &mut self,
        path: impl AsRef<Path>,
        options: &SaveOptions<'_>,
    ) -> Result<Saved, Error> {
        let states = self.states()?;
        self.ctx.save_all_with(path, &SaveOptions { samplers: &states, ..*options })
    }

    /// Make a session of the sequence in the file at `path`: [`Session::restore_with`].
    ///
    /// # Errors
    /// Those of [`Session::restore_with`].
    pub fn restore(ctx: Context, chain: &Chain, path: impl AsRef<Path>) -> Result<(Self, Restored), Error> {
        Self::restore_with(ctx, chain, path, &RestoreOptions::default())
    }

    /// Make a session of the sequence in the file at `path`, which [`Session::save`] or [`Context::save`]
    /// wrote: [`Context::restore_with`], then [`Session::adopt`].
    ///
    /// # Errors
    /// Those of [`Context::restore_with`] and [`Session::adopt`].
    pub fn restore_with(
        mut ctx: Context,
        chain: &Chain,
        path: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<(Self, Restored), Error> {
        let restored = ctx.restore_with(path, options)?;
        Ok((Self::adopt(ctx, chain, &restored)?, restored))
    }

    /// Make a session of all sequences in the file at `path`: [`Session::restore_all_with`].
    ///
    /// # Errors
    /// Those of [`Session::restore_all_with`].
    pub fn restore_all(
        ctx: Context,
        chain: &Chain,
        path: impl AsRef<Path>,
    ) -> Result<(Self, Restored), Error> {
        Self::restore_all_with(ctx, chain, path, &RestoreOptions::default())
    }

    /// Make a session of all sequences in the file at `path`, which [`Session::save_all`] or
    /// [`Context::save_all`] wrote. Each branch has its id again, and goes on as if it had never been
    /// saved.
    ///
    /// # Errors
    /// Those of [`Context::restore_all_with`] and [`Session::adopt`].
    pub fn restore_all_with(
        mut ctx: Context,
        chain: &Chain,
        path: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<(Self, Restored), Error> {
        let restored = ctx.restore_all_with(path, options)?;
        Ok((Self::adopt(ctx, chain, &restored)?, restored))
    }

    /// Make the current branch hold the longest beginning of `tokens` that `store` has:
    /// [`Context::recall`]. The rest is left to [`Session::hold`] or [`Session::feed`].
    ///
    /// # Errors
    /// [`Error::TooLong`] and [`Error::Token`], before anything is taken back; as [`Session::rollback`]. As
    /// [`Context::recall`], and the branch is empty then.
    pub fn recall(&mut self, store: &Store, tokens: &[Token]) -> Result<Recalled, Error> {
        self.check_fit(Pos::ZERO, tokens)?;
        self.rollback(Pos::ZERO)?;
        let seq = self.current();
        let recalled = self.ctx.recall(seq, store, tokens)?;
        self.note(tokens.get(..recalled.n_tokens).unwrap_or_default());
        Ok(recalled)
    }

    /// Return the part of what the current branch holds that `store` lacks: [`Context::remember`].
    ///
    /// # Errors
    /// Those of [`Context::remember`] and [`Session::settle`].
    pub fn remember(&mut self, store: &Store) -> Result<Option<Entry<'_>>, Error> {
        self.settle()?;
        self.ctx.remember(self.here.seq, store)
    }
}
