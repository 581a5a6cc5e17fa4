//! Taking back and replacing what a branch holds.

use super::{Session, limit_of, no_rollback};
use crate::context::Rollback;
use crate::error::Error;
use crate::sampler::Rng;
use crate::speculative::Unsettled;
use crate::vocab::ParseSpecial;
use alloc::vec::Vec;
use backstitch_kv::{Pos, Token};

/// The outcome of making a branch hold certain tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Tokens at the beginning that were there already.
    pub kept: usize,
    /// Tokens after them that were evaluated.
    pub evaluated: usize,
    /// The rollback to the last of the kept ones.
    pub rollback: Rollback,
}

/// The random numbers of another answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// Those of the answer before: it comes again.
    Repeat,
    /// Those after it, as if nothing had been taken back.
    GoOn,
    /// Those of a seed, from their beginning.
    Seed(u64),
}

impl Session {
    /// Make the current branch hold `tokens`: keep what both begin with, take back the rest, evaluate what
    /// is new.
    ///
    /// # Errors
    /// [`Error::TooLong`] and [`Error::Token`], before anything is taken back. As [`Session::rollback`] and
    /// [`Session::feed`]; the branch then holds what it kept, or more.
    pub fn hold(&mut self, tokens: &[Token]) -> Result<Held, Error> {
        self.hold_with(tokens, |_| {})
    }

    /// Make the current branch hold `tokens`, as [`Session::hold`]; `progress` is called as by
    /// [`Session::feed_with`], for the tokens that are new.
    ///
    /// # Errors
    /// Those of [`Session::hold`].
    pub fn hold_with(&mut self, tokens: &[Token], progress: impl FnMut(usize)) -> Result<Held, Error> {
        self.check_fit(Pos::ZERO, tokens)?;
        let kept = self.here.common(tokens);
        let rollback = self.rollback(Pos(kept as i32))?;
        let new = tokens.get(kept..).unwrap_or_default();
        self.feed_with(new, progress)?;
        Ok(Held { kept, evaluated: new.len(), rollback })
    }

    /// Checks that the current branch can hold `tokens` from `pos` on, other branches aside.
    pub(super) fn check_fit(&self, pos: Pos, tokens: &[Token]) -> Result<(), Error> {
        let n_vocab = self.ctx.model().hparams().n_vocab;
        let stranger = (0..).zip(tokens).find(|(_, token)| token.0 as usize >= n_vocab);
        if let Some((index, token)) = stranger {
            return Err(Error::Token { index, token: token.0, n_vocab });
        }
        let n_tokens = tokens.len().saturating_add(usize::try_from(pos.0).unwrap_or(0));
        match limit_of(&self.ctx) {
            Some(n_ctx) if n_tokens > n_ctx => Err(Error::TooLong { n_tokens, n_ctx }),
            _ => Ok(()),
        }
    }

    /// Take the current branch back to where its next position is `pos`, as
    /// [`Context::rollback`](crate::Context::rollback), and its chain to where it stood there.
    ///
    /// # Errors
    /// Those of [`Context::rollback`](crate::Context::rollback), and what
    /// [`Sampler::restore`](crate::sampler::Sampler::restore) says, after the tokens were taken back.
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
        let branch = &mut self.here;
        if result.is_ok() || held < pos {
            branch.unsettled = Unsettled::default();
            branch.cut(held)?;
        }
        result
    }

    /// Replace all tokens of the current branch from `pos` on by `tokens`.
    ///
    /// # Errors
    /// [`Error::TooLong`] and [`Error::Token`], before anything is taken back. As [`Session::rollback`]; as
    /// [`Session::feed`], and the branch ends at `pos` or behind it then.
    pub fn edit(&mut self, pos: Pos, tokens: &[Token]) -> Result<Rollback, Error> {
        self.check_fit(pos, tokens)?;
        let rollback = self.rollback(pos)?;
        self.feed(tokens).map(|()| rollback)
    }

    /// Take back what was generated last in the current branch and all behind it, to generate it again.
    ///
    /// # Errors
    /// [`Error::NothingGenerated`] if nothing was, because the generation failed before its first token, say, or
    /// it was taken back already; as [`Session::rollback`].
    pub fn regenerate(&mut self, randomness: Randomness) -> Result<Rollback, Error> {
        let generated = self.here.generated.clone();
        let generated = generated.ok_or(Error::NothingGenerated { seq: self.here.seq.0 })?;
        let (seed, rng) = (self.here.chain.seed(), self.here.chain.rng());
        let rollback = self.rollback(generated.start)?;
        match randomness {
            Randomness::Repeat => self.here.stand_as(&generated)?,
            Randomness::GoOn => self.here.reseed(seed, rng),
            Randomness::Seed(seed) => self.reseed(seed),
        }
        Ok(rollback)
    }

    /// Draw with the random numbers of `seed` from the end of the current branch on, from their beginning.
    /// A rollback behind it takes that back.
    pub fn reseed(&mut self, seed: u64) {
        self.here.reseed(seed, Rng::new(seed));
    }

    /// Take the stop string that ended the last generation out of the current branch, so that it holds just
    /// the text that was shown: a rollback to before the token in which it begins, and that token's text
    /// before it, tokenised. `None` if no stop string ended it, or the branch has changed since.
    ///
    /// # Errors
    /// Those of [`Session::edit`].
    pub fn cut_stop(&mut self) -> Result<Option<Held>, Error> {
        let stop = self.here.generated.as_ref().and_then(|generated| generated.stop.clone());
        let Some((pos, rest)) = stop else { return Ok(None) };
        let mut tokens = Vec::new();
        self.ctx.model().vocab().tokenize_behind(&rest, ParseSpecial::No, &mut tokens);
        let rollback = self.rollback(pos)?;
        let kept = self.tokens().len();
        self.feed(&tokens)?;
        Ok(Some(Held { kept, evaluated: tokens.len(), rollback }))
    }
}
