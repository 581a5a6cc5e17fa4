//! Changes of a branch: setting its tokens, rollback, edits, and generating again.

use super::{Session, limit_of, no_rollback};
use crate::context::Rollback;
use crate::error::Error;
use crate::sampler::Rng;
use crate::vocab::ParseSpecial;
use alloc::vec::Vec;
use backstitch_kv::{Pos, Token};

/// The outcome of setting the tokens of a branch: the length of the prefix that was reused, and the
/// work for the rest.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.set_tokens(&[Token(5), Token(6), Token(7)])?;
/// let reuse = session.set_tokens(&[Token(5), Token(6), Token(9), Token(9)])?;
/// assert_eq!((reuse.kept, reuse.evaluated), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixReuse {
    /// The number of tokens at the beginning that were there already.
    pub kept: usize,
    /// The number of tokens after them that were evaluated.
    pub evaluated: usize,
    /// The rollback to the end of the reused prefix.
    pub rollback: Rollback,
}

/// The random numbers of a repeated generation.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::{GenerateOptions, Randomness};
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5)])?;
/// session.generate(GenerateOptions::default().limit(8)).for_each(drop);
/// let first = session.tokens().to_vec();
/// session.regenerate(Randomness::Repeat)?;
/// session.generate(GenerateOptions::default().limit(8)).for_each(drop);
/// assert_eq!(session.tokens(), first);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// Those of the first generation, which gives the same text again.
    Repeat,
    /// Those after the first generation, as if nothing had been rolled back.
    Continue,
    /// Those of a seed, from their beginning.
    Seed(u64),
}

impl Session {
    /// Set the tokens of the current branch: keep the common prefix, roll back the rest, and
    /// evaluate the new tokens.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::BeyondPositions`] or [`Error::Token`], before anything is
    /// rolled back. Those of [`Session::rollback`] and [`Session::feed`]; the branch then holds the
    /// common prefix, or more.
    pub fn set_tokens(&mut self, tokens: &[Token]) -> Result<PrefixReuse, Error> {
        self.set_tokens_with(tokens, |_| {})
    }

    /// Set the tokens of the current branch, as [`Session::set_tokens`]. `progress` is called as by
    /// [`Session::feed_with`], for the new tokens.
    ///
    /// # Errors
    /// Those of [`Session::set_tokens`].
    pub fn set_tokens_with(
        &mut self,
        tokens: &[Token],
        progress: impl FnMut(usize),
    ) -> Result<PrefixReuse, Error> {
        self.check_fit(Pos::ZERO, tokens)?;
        let kept = self.current.common(tokens);
        let rollback = self.rollback(Pos(kept as i32))?;
        debug_assert!(kept <= tokens.len(), "a prefix of the tokens");
        let new = tokens.get(kept..).unwrap_or_default();
        self.feed_with(new, progress)?;
        Ok(PrefixReuse { kept, evaluated: new.len(), rollback })
    }

    /// Check that the current branch can hold `tokens` from `pos` on, ignoring the other branches.
    ///
    /// # Errors
    /// [`Error::Token`] for a token outside of the vocabulary; [`Error::TooLong`] if there are too
    /// few cells, [`Error::BeyondPositions`] if there are too few positions.
    pub(super) fn check_fit(&self, pos: Pos, tokens: &[Token]) -> Result<(), Error> {
        let n_vocab = self.ctx.model().hparams().n_vocab;
        let stranger = (0..).zip(tokens).find(|(_, token)| token.0 as usize >= n_vocab);
        if let Some((index, token)) = stranger {
            return Err(Error::Token { index, token: token.0, n_vocab });
        }
        let n_tokens = tokens.len().saturating_add(usize::try_from(pos.0).unwrap_or(0));
        let n_positions = self.ctx.model().graph().n_positions();
        match limit_of(&self.ctx) {
            Some(n_pos) if n_tokens > n_pos && n_positions == Some(n_pos) => {
                Err(Error::BeyondPositions { pos: n_pos as i32, n_pos })
            }
            Some(n_ctx) if n_tokens > n_ctx => Err(Error::TooLong { n_tokens, n_ctx }),
            _ => Ok(()),
        }
    }

    /// Roll the current branch back, so that its next position is `pos`, as
    /// [`Context::rollback`](crate::Context::rollback) does, and restore the chain's state there.
    ///
    /// # Errors
    /// [`Error::FuturePosition`] if `pos` is behind the end; those of
    /// [`Context::rollback`](crate::Context::rollback). Those of
    /// [`Sampler::restore`](crate::sampler::Sampler::restore), after the tokens were rolled back.
    pub fn rollback(&mut self, pos: Pos) -> Result<Rollback, Error> {
        let end = self.pos();
        if pos == end {
            return Ok(no_rollback(pos));
        }
        if pos > end {
            return Err(Error::FuturePosition { pos: pos.0, end: end.0 });
        }
        let seq = self.current();
        let result = self.ctx.rollback(seq, pos);
        let held = self.ctx.pos(seq)?;
        if result.is_ok() || held < pos {
            self.current.cut(held)?;
        }
        result
    }

    /// Pin the end of the current branch, for example the end of a message, as
    /// [`Context::pin`](crate::Context::pin): a rollback reaches it at once until it is unpinned or
    /// left behind. Return its position.
    ///
    /// # Errors
    /// Those of [`Context::pin`](crate::Context::pin) and [`Session::evaluate_pending`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::sampler::Settings;
    /// use backstitch_models::{Context, Model, Params, Session, Token};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let ctx = Context::new(&model, Params::default().n_ctx(256))?;
    /// let mut session = Session::new(ctx, &Settings::default())?;
    /// session.feed(&[Token(5); 40])?;
    /// let end = session.pin()?;
    /// session.feed(&[Token(6); 100])?;
    /// assert_eq!(session.rollback(end)?.reevaluated, 0);
    /// assert!(session.unpin(end)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&mut self) -> Result<Pos, Error> {
        self.evaluate_pending()?;
        self.ctx.pin(self.current.seq)?;
        Ok(self.pos())
    }

    /// Remove a pin of the current branch, from all branches that share it; return false if there
    /// is none at `pos`.
    ///
    /// # Errors
    /// Those of [`Context::unpin`](crate::Context::unpin).
    pub fn unpin(&mut self, pos: Pos) -> Result<bool, Error> {
        self.ctx.unpin(self.current.seq, pos)
    }

    /// Replace all tokens of the current branch from `pos` on by `tokens`.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::BeyondPositions`] or [`Error::Token`], before anything is
    /// rolled back. Those of [`Session::rollback`]. Those of [`Session::feed`]; the branch then
    /// ends at `pos` or behind it.
    pub fn edit(&mut self, pos: Pos, tokens: &[Token]) -> Result<Rollback, Error> {
        self.check_fit(pos, tokens)?;
        let rollback = self.rollback(pos)?;
        self.feed(tokens).map(|()| rollback)
    }

    /// Roll the last generation of the current branch back, with everything behind it, to generate
    /// again.
    ///
    /// # Errors
    /// [`Error::NothingGenerated`] if there is no generation: it failed before its first token, or
    /// was rolled back already. Those of [`Session::rollback`].
    pub fn regenerate(&mut self, randomness: Randomness) -> Result<Rollback, Error> {
        let generated = self.current.generated.clone();
        let generated = generated.ok_or(Error::NothingGenerated { seq: self.current.seq.0 })?;
        let (seed, rng) = (self.current.chain.seed(), self.current.chain.rng());
        let rollback = self.rollback(generated.start)?;
        match randomness {
            Randomness::Repeat => self.current.restore_start(&generated)?,
            Randomness::Continue => self.current.reseed(seed, rng),
            Randomness::Seed(seed) => self.reseed(seed),
        }
        Ok(rollback)
    }

    /// Draw with the random numbers of `seed` from the end of the current branch on, from their
    /// beginning. A rollback to before that undoes it.
    pub fn reseed(&mut self, seed: u64) {
        self.current.reseed(seed, Rng::new(seed));
    }

    /// Remove the stop string that ended the last generation from the current branch, so that the
    /// branch holds exactly the text that was shown.
    ///
    /// This rolls back to before the token in which the stop string begins, and evaluates that
    /// token's text before the stop string. The result is `None` if no stop string ended the
    /// generation, or if the branch has changed since.
    ///
    /// # Errors
    /// Those of [`Session::edit`].
    pub fn cut_stop(&mut self) -> Result<Option<PrefixReuse>, Error> {
        let stop = self.current.generated.as_ref().and_then(|generated| generated.stop.clone());
        let Some((pos, rest)) = stop else { return Ok(None) };
        let mut tokens = Vec::new();
        self.ctx.model().vocab().tokenize_behind(&rest, ParseSpecial::No, &mut tokens);
        let rollback = self.rollback(pos)?;
        let kept = self.tokens().len();
        self.feed(&tokens)?;
        Ok(Some(PrefixReuse { kept, evaluated: tokens.len(), rollback }))
    }
}
