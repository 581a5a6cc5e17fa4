//! Speculative decoding: guess the next tokens, evaluate them together, keep those that plain decoding
//! would have chosen.
//!
//! Evaluating a few tokens at once costs little more than evaluating one, because the weights are read
//! once. A [`Drafter`] guesses what comes next, from the text itself ([`Lookup`]) or with a smaller model
//! ([`DraftModel`]); one batch evaluates the guesses; then the sampler chain draws from the target's own
//! logits, position by position, as it would have without any guess. As long as what it draws is what was
//! guessed, the next position's logits are there already. The first guess that differs, and all behind it,
//! are rolled back.
//!
//! So guesses decide about speed only. The chain sees the same logits (bit for bit, by contract 1) and the
//! same history and draws as many random numbers as plain decoding, so the text is the same for the same
//! seed, greedy or sampled, with every kind of memory, however bad the drafter.
//!
//! ```
//! use backstitch_models::sampler::{Chain, Settings};
//! use backstitch_models::speculative::{Lookup, Speculative};
//! use backstitch_models::{Context, Model, Params, Token};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let mut ctx = Context::new(&model, Params::default().n_ctx(128))?;
//! let mut chain = Chain::new(model.hparams().n_vocab, &Settings::default().seed(7));
//! let seq = ctx.sequence()?;
//! ctx.append(seq, &[Token(5), Token(6), Token(7), Token(5), Token(6)])?;
//!
//! let mut speculative = Speculative::new(Lookup::default(), seq, 8);
//! let mut story = Vec::new();
//! while story.len() < 20 {
//!     let step = speculative.step(&mut ctx, &mut chain, 20 - story.len(), |_| false)?;
//!     story.extend_from_slice(step.tokens);
//! }
//! speculative.flush(&mut ctx)?; // the sequence holds the last token too
//! assert_eq!(ctx.tokens(seq)?[5..], story);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draft_model;
mod lookup;

pub use draft_model::DraftModel;
pub use lookup::Lookup;

use crate::{context::Context, error::Error, sampler::Chain};
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::{Batch, Pos, SeqId, Token};
use core::ops::ControlFlow;

/// Guesses how a text goes on.
pub trait Drafter {
    /// Appends at most `n` tokens that may come after `held` and then `last` to the empty `draft`; none is
    /// fine.
    ///
    /// `held` is what the sequence holds, and empty if that is not known. Guesses cost time when they are
    /// wrong; they never change a text.
    ///
    /// # Errors
    /// Those of the drafter's own work. The step that asked fails then, and nothing has changed.
    fn draft(&mut self, held: &[Token], last: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error>;
}

impl<D: Drafter + ?Sized> Drafter for Box<D> {
    fn draft(&mut self, held: &[Token], last: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        (**self).draft(held, last, n, draft)
    }
}

/// `None` guesses nothing: decoding is plain then, a token a step.
impl<D: Drafter> Drafter for Option<D> {
    fn draft(&mut self, held: &[Token], last: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        self.as_mut().map_or(Ok(()), |drafter| drafter.draft(held, last, n, draft))
    }
}

/// What speculation has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tokens guessed and evaluated.
    pub n_drafted: u64,
    /// Those among them that were right.
    pub n_accepted: u64,
    /// Batches decoded.
    pub n_decodes: u64,
    /// Tokens evaluated again because wrong guesses had to be rolled back.
    pub n_reevaluated: u64,
}

/// What a step has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step<'a> {
    /// The next tokens of the text, at least one unless the text ended.
    pub tokens: &'a [Token],
    /// The token that ends the text, if it was drawn; it is neither accepted nor evaluated.
    pub end: Option<Token>,
}

/// Continues one sequence of a context, several tokens a step where guesses are right.
///
/// Between steps the last token chosen is not evaluated yet: [`Speculative::next`] is that token, and
/// [`Speculative::flush`] evaluates it. Whoever changes the sequence otherwise calls [`Speculative::reset`].
#[derive(Debug)]
pub struct Speculative<D> {
    drafter: D,
    seq: SeqId,
    /// The most tokens guessed in a step.
    n_max: usize,
    /// How many the next step asks for: more after right guesses, fewer after wrong ones.
    n_draft: usize,
    next: Option<Token>,
    /// Where the sequence ends, if wrong guesses could not be rolled back yet.
    end: Option<Pos>,
    draft: Vec<Token>,
    chosen: Vec<Token>,
    batch: Batch,
    stats: Stats,
}

impl<D: Drafter> Speculative<D> {
    /// Continues `seq` with guesses of `drafter`, at most `n_draft` a step.
    pub fn new(drafter: D, seq: SeqId, n_draft: usize) -> Self {
        Speculative {
            drafter,
            seq,
            n_max: n_draft,
            n_draft,
            next: None,
            end: None,
            draft: Vec::new(),
            chosen: Vec::new(),
            batch: Batch::new(),
            stats: Stats::default(),
        }
    }

    /// Chooses the next tokens with `chain`: one if no guess is right, at most `limit`. The chain has
    /// accepted them afterwards. Choosing stops at a token for which `ends` is true.
    ///
    /// The first step draws from the logits of the sequence's last token, as plain decoding does.
    ///
    /// # Errors
    /// [`Error::NoToken`] if the chain leaves no token, and those of [`Context::logits`],
    /// [`Context::decode`], [`Context::rollback`] and the drafter. Nothing was chosen then and the sequence
    /// ends where it did; the step can be tried again. Where only the guesses find no room, it goes on
    /// without them.
    ///
    /// That wrong guesses cannot be rolled back is no error of the step that chose the tokens: the next one
    /// tries again, and fails if it cannot either.
    pub fn step(
        &mut self,
        ctx: &mut Context,
        chain: &mut Chain,
        limit: usize,
        ends: impl Fn(Token) -> bool,
    ) -> Result<Step<'_>, Error> {
        self.step_with(ctx, chain, limit, ends)
    }

    /// As [`Speculative::step`], with whoever chooses.
    pub(crate) fn step_with(
        &mut self,
        ctx: &mut Context,
        chooser: &mut impl Choose,
        limit: usize,
        ends: impl Fn(Token) -> bool,
    ) -> Result<Step<'_>, Error> {
        self.settle(ctx)?;
        self.chosen.clear();
        self.draft.clear();
        let end = match self.next {
            _ if limit == 0 => None,
            None => {
                let logits = ctx.logits(self.seq)?;
                match chooser.draw(logits).ok_or(Error::NoToken { seq: self.seq.0 })? {
                    token if ends(token) => Some(token),
                    token => {
                        // The first is chosen alone: enough or not, the step is over.
                        let _ = self.choose(chooser, token);
                        None
                    }
                }
            }
            Some(last) => {
                let start = ctx.pos(self.seq)?;
                self.guess(ctx, last, limit - 1)?;
                self.evaluate(ctx, last)?;
                self.check(ctx, chooser, start, last, ends)?
            }
        };
        Ok(Step { tokens: &self.chosen, end })
    }

    fn choose(&mut self, chooser: &mut impl Choose, token: Token) -> ControlFlow<()> {
        self.chosen.push(token);
        self.next = Some(token);
        chooser.take(token)
    }

    /// Asks for guesses, no more than `limit` and than there is room for.
    fn guess(&mut self, ctx: &Context, last: Token, limit: usize) -> Result<(), Error> {
        let held = ctx.tokens(self.seq)?;
        let end = usize::try_from(ctx.pos(self.seq)?.0).unwrap_or(usize::MAX);
        let room = ctx.room_after(end.saturating_add(1));
        let n = self.n_draft.min(limit).min(room);
        if n == 0 {
            return Ok(());
        }
        self.drafter.draft(held, last, n, &mut self.draft)?;
        self.draft.truncate(n);
        let n_vocab = ctx.model().hparams().n_vocab;
        let known = self.draft.iter().take_while(|token| (token.0 as usize) < n_vocab).count();
        self.draft.truncate(known);
        Ok(())
    }

    /// Evaluates the last token and the guesses behind it; without these if they find no room.
    fn evaluate(&mut self, ctx: &mut Context, last: Token) -> Result<(), Error> {
        self.fill(ctx.pos(self.seq)?, last);
        match ctx.decode(&self.batch) {
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) if !self.draft.is_empty() => {
                self.draft.clear();
                self.fill(ctx.pos(self.seq)?, last);
                ctx.decode(&self.batch)?;
            }
            result => result?,
        }
        self.next = None;
        self.stats.n_decodes += 1;
        self.stats.n_drafted += self.draft.len() as u64;
        Ok(())
    }

    fn fill(&mut self, start: Pos, last: Token) {
        self.batch.clear();
        for (pos, &token) in (start.0..).zip([last].iter().chain(&self.draft)) {
            self.batch.push(token, Pos(pos), &[self.seq], true);
        }
    }

    /// Draws at each position until a guess differs or enough was chosen, and rolls back what was guessed
    /// from there on.
    fn check(
        &mut self,
        ctx: &mut Context,
        chooser: &mut impl Choose,
        start: Pos,
        last: Token,
        ends: impl Fn(Token) -> bool,
    ) -> Result<Option<Token>, Error> {
        let mut n_right = 0;
        let end = loop {
            let Some(token) = ctx.output(n_right).and_then(|logits| chooser.draw(logits)) else {
                return self.stop(ctx, start, last, n_right).map(|()| None);
            };
            if ends(token) {
                self.next = None;
                break Some(token);
            }
            let go = self.choose(chooser, token);
            if go.is_break() || self.draft.get(n_right) != Some(&token) {
                break None;
            }
            n_right += 1;
        };
        self.stats.n_accepted += n_right as u64;
        if n_right < self.draft.len() {
            self.n_draft = (n_right + 1).min(self.n_max);
            self.end = Some(Pos(start.0 + 1 + n_right as i32));
            // The tokens are chosen whether this succeeds or not; what fails is tried again before the next
            // step.
            let _ = self.settle(ctx);
        } else if n_right > 0 {
            self.n_draft = self.n_draft.saturating_mul(2).min(self.n_max);
        }
        Ok(end)
    }

    /// Nothing could be drawn after `n_right` guesses. What was chosen stays; its last token counts as not
    /// evaluated, so that the next step evaluates it again and draws from its logits, or fails as this one
    /// does if it chose nothing.
    fn stop(&mut self, ctx: &mut Context, start: Pos, last: Token, n_right: usize) -> Result<(), Error> {
        self.stats.n_accepted += n_right as u64;
        self.next = Some(self.chosen.last().copied().unwrap_or(last));
        self.end = Some(Pos(start.0 + n_right as i32));
        let _ = self.settle(ctx);
        if n_right == 0 { Err(Error::NoToken { seq: self.seq.0 }) } else { Ok(()) }
    }

    /// Rolls back the wrong guesses that are still there.
    fn settle(&mut self, ctx: &mut Context) -> Result<(), Error> {
        if let Some(end) = self.end {
            let done = ctx.rollback(self.seq, end)?;
            self.stats.n_reevaluated += u64::from(done.reevaluated);
            self.end = None;
        }
        Ok(())
    }

    /// Evaluates the last token chosen, so that the context is what plain decoding makes of it.
    ///
    /// # Errors
    /// Those of [`Context::append`] and [`Context::rollback`]; it can be tried again then.
    pub fn flush(&mut self, ctx: &mut Context) -> Result<(), Error> {
        self.settle(ctx)?;
        if let Some(last) = self.next {
            ctx.append(self.seq, &[last])?;
            self.next = None;
        }
        Ok(())
    }

    /// Forgets the last token chosen: the next step begins with the logits of the sequence as it is then.
    pub fn reset(&mut self) {
        (self.next, self.end) = (None, None);
    }

    /// Continues `seq` from now on, which is left as `unsettled` says; the sequence before is as it was left.
    pub(crate) fn follow(&mut self, seq: SeqId, unsettled: Unsettled) {
        self.seq = seq;
        Unsettled { next: self.next, end: self.end } = unsettled;
    }

    /// What is still to be done for the sequence.
    pub(crate) fn unsettled(&self) -> Unsettled {
        Unsettled { next: self.next, end: self.end }
    }

    /// The last token chosen, if it is not evaluated yet.
    pub fn next(&self) -> Option<Token> {
        self.next
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

/// Draws tokens, and is told of each that becomes part of the text.
pub(crate) trait Choose {
    /// Draws the next token, if any is left.
    fn draw(&mut self, logits: &[f32]) -> Option<Token>;

    /// Notes that `token` was drawn and does not end the text. Breaks if no further one is wanted.
    fn take(&mut self, token: Token) -> ControlFlow<()>;
}

impl Choose for Chain {
    fn draw(&mut self, logits: &[f32]) -> Option<Token> {
        self.sample(logits)
    }

    fn take(&mut self, token: Token) -> ControlFlow<()> {
        self.accept(token);
        ControlFlow::Continue(())
    }
}

/// How far the context is behind the tokens chosen for a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsettled {
    /// The last token chosen, if it is not evaluated yet.
    pub next: Option<Token>,
    /// Where the sequence ends, if wrong guesses could not be rolled back yet.
    pub end: Option<Pos>,
}
