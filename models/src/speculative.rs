//! Speculative decoding: draft the next tokens, evaluate them together, and keep those that plain
//! decoding would have chosen.
//!
//! Evaluating a few tokens at once costs little more than evaluating one, because the weights are
//! read once. A [`Drafter`] proposes the next tokens, from the text itself ([`Lookup`]) or with a
//! smaller model ([`DraftModel`]), and one batch evaluates the draft. Then the sampler chain draws
//! from the target's own logits, position by position, as it would have without a draft. While each
//! token drawn is the token drafted, the logits of the next position are there already. The first
//! drafted token that differs is rejected, and it and all tokens behind it are rolled back.
//!
//! Drafts therefore change the speed and never the text. The chain sees the same logits (bit for
//! bit), has the same history, and draws as many random numbers as in plain decoding. The text is
//! the same for the same seed, greedy or sampled, with every kind of memory, however bad the
//! drafter.
//!
//! The method is that of Leviathan et al., "Fast inference from transformers via speculative
//! decoding", 2023, with one difference: a token is accepted if the chain draws it, and not by a
//! comparison of probabilities.
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
//! let mut generated = Vec::new();
//! while generated.len() < 20 {
//!     let step = speculative.step(&mut ctx, &mut chain, 20 - generated.len(), |_| false)?;
//!     generated.extend_from_slice(step.tokens);
//! }
//! speculative.flush(&mut ctx)?; // the sequence holds the last token too
//! assert_eq!(ctx.tokens(seq)?[5..], generated);
//! let stats = speculative.stats();
//! assert!(stats.n_accepted <= stats.n_drafted);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draft_model;
mod lookup;

pub use draft_model::DraftModel;
pub use lookup::Lookup;

use crate::{cancel::Cancel, context::Context, error::Error, sampler::Chain};
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::{Batch, Pos, SeqId, Token, Wanted};
use core::ops::ControlFlow;

/// A source of drafts: tokens that may continue a text.
///
/// # Example
/// ```
/// use backstitch_models::speculative::Drafter;
/// use backstitch_models::{Error, Token};
///
/// /// Drafts the last token again and again.
/// struct Stutter;
///
/// impl Drafter for Stutter {
///     fn draft(
///         &mut self,
///         _: &[Token],
///         last: Token,
///         n: usize,
///         draft: &mut Vec<Token>,
///     ) -> Result<(), Error> {
///         draft.extend(std::iter::repeat_n(last, n));
///         Ok(())
///     }
/// }
///
/// let mut draft = Vec::new();
/// Stutter.draft(&[], Token(3), 2, &mut draft)?;
/// assert_eq!(draft, [Token(3), Token(3)]);
/// # Ok::<(), Error>(())
/// ```
pub trait Drafter {
    /// Append at most `n` tokens that may come after `tokens` and then `last` to the empty `draft`.
    /// Appending none is fine.
    ///
    /// `tokens` are those of the sequence, or empty if they are not known. Rejected tokens cost
    /// time; they never change a text.
    ///
    /// # Errors
    /// Those of the drafter's own work. The step that asked for the draft then fails, and nothing
    /// has changed.
    fn draft(&mut self, tokens: &[Token], last: Token, n: usize, draft: &mut Vec<Token>)
    -> Result<(), Error>;

    /// Stop drafting with [`Error::Cancelled`] when `cancel` asks for it, from now on; `None` ends
    /// that. Drafters that take no time can ignore it, as the default does.
    fn set_cancel(&mut self, _: Option<Cancel>) {}
}

impl<D: Drafter + ?Sized> Drafter for Box<D> {
    fn draft(
        &mut self,
        tokens: &[Token],
        last: Token,
        n: usize,
        draft: &mut Vec<Token>,
    ) -> Result<(), Error> {
        (**self).draft(tokens, last, n, draft)
    }

    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        (**self).set_cancel(cancel);
    }
}

/// `None` drafts nothing: decoding is plain then, one token per step.
impl<D: Drafter> Drafter for Option<D> {
    fn draft(
        &mut self,
        tokens: &[Token],
        last: Token,
        n: usize,
        draft: &mut Vec<Token>,
    ) -> Result<(), Error> {
        self.as_mut().map_or(Ok(()), |drafter| drafter.draft(tokens, last, n, draft))
    }

    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.iter_mut().for_each(|drafter| drafter.set_cancel(cancel.clone()));
    }
}

/// Counts of a speculation since its start. [`Speculative::stats`] returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tokens drafted and evaluated.
    pub n_drafted: u64,
    /// Drafted tokens that were accepted.
    pub n_accepted: u64,
    /// Batches decoded.
    pub n_decodes: u64,
    /// Tokens re-evaluated because rejected tokens had to be rolled back.
    pub n_reevaluated: u64,
}

/// The tokens that a step has chosen.
///
/// [`Speculative::step`] returns it; the [module](self) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step<'a> {
    /// The next tokens of the text, at least one unless the text ended.
    pub tokens: &'a [Token],
    /// The token that ends the text, if it was drawn. It is neither accepted nor evaluated.
    pub end: Option<Token>,
}

/// A speculative decoder of one sequence: several tokens per step where drafts are right.
///
/// Between steps the last token chosen is not evaluated yet. [`Speculative::next`] returns that
/// token, and [`Speculative::flush`] evaluates it. After any other change of the sequence, call
/// [`Speculative::reset`]. The [module](self) has an example.
#[derive(Debug)]
pub struct Speculative<D> {
    drafter: D,
    seq: SeqId,
    /// The most tokens drafted in a step.
    n_max: usize,
    /// The number of tokens that the next step drafts: more after accepted drafts, fewer after
    /// rejected ones.
    n_draft: usize,
    /// The last token chosen, if it is not evaluated yet.
    next: Option<Token>,
    /// The end of the sequence, if rejected tokens could not be rolled back yet.
    end: Option<Pos>,
    draft: Vec<Token>,
    chosen: Vec<Token>,
    batch: Batch,
    stats: Stats,
}

impl<D: Drafter> Speculative<D> {
    /// Make a decoder of `seq` with drafts of `drafter`, at most `n_draft` tokens per step.
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

    /// Choose the next tokens with `chain`: one if nothing drafted is accepted, and at most
    /// `limit`. The chain has accepted them afterwards. Choosing stops at a token for which `ends`
    /// is true.
    ///
    /// The first step draws from the logits of the sequence's last token, as plain decoding does. A
    /// draft for which there are no free cells is dropped, and the step continues without it.
    ///
    /// # Errors
    /// [`Error::NoToken`] if the chain leaves no token; those of [`Context::logits`],
    /// [`Context::decode`], [`Context::rollback`] and the drafter. Nothing was chosen then, the
    /// sequence has not changed, and the step can be tried again. A failure to roll rejected tokens
    /// back is no error of the step that chose the tokens: the next step tries again, and fails if
    /// it cannot either.
    ///
    /// There is one exception, that of [`Context::rollback`]: a failure can leave the sequence at
    /// an earlier position, without tokens that the chain accepted, even those of this step.
    /// [`Context::pos`] returns that position, and [`Speculative::next`] is `None` then. Append
    /// the tokens again, or roll the chain back too.
    pub fn step(
        &mut self,
        ctx: &mut Context,
        chain: &mut Chain,
        limit: usize,
        ends: impl Fn(Token) -> bool,
    ) -> Result<Step<'_>, Error> {
        self.step_with(ctx, chain, limit, ends)
    }

    /// Choose the next tokens, as [`Speculative::step`], with any chooser.
    pub(crate) fn step_with(
        &mut self,
        ctx: &mut Context,
        chooser: &mut impl Choose,
        limit: usize,
        ends: impl Fn(Token) -> bool,
    ) -> Result<Step<'_>, Error> {
        self.roll_back_rejected(ctx)?;
        self.chosen.clear();
        self.draft.clear();
        let end = match self.next {
            _ if limit == 0 => None,
            None => {
                let logits = ctx.logits(self.seq)?;
                match chooser.draw(logits).ok_or(Error::NoToken { seq: self.seq.0 })? {
                    token if ends(token) => Some(token),
                    token => {
                        // The first token is chosen alone, so the step ends here whether the
                        // chooser wants more or not.
                        let _ = self.choose(chooser, token);
                        None
                    }
                }
            }
            Some(last) => {
                let start = ctx.pos(self.seq)?;
                self.request_draft(ctx, last, limit - 1)?;
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

    /// Ask for a draft of at most `limit` tokens, and no more than there are free cells for.
    fn request_draft(&mut self, ctx: &Context, last: Token, limit: usize) -> Result<(), Error> {
        let tokens = ctx.tokens(self.seq)?;
        let room = room_after(ctx, ctx.pos(self.seq)?.0.unsigned_abs() as usize + 1);
        let n = self.n_draft.min(limit).min(room);
        if n == 0 {
            return Ok(());
        }
        self.drafter.draft(tokens, last, n, &mut self.draft)?;
        self.draft.truncate(n);
        let n_vocab = ctx.model().hparams().n_vocab;
        let known = self.draft.iter().take_while(|token| (token.0 as usize) < n_vocab).count();
        self.draft.truncate(known);
        Ok(())
    }

    /// Evaluate the last token and the draft behind it; without the draft if there are no free
    /// cells for it.
    fn evaluate(&mut self, ctx: &mut Context, last: Token) -> Result<(), Error> {
        let start = ctx.pos(self.seq)?;
        self.batch.clear();
        self.batch.extend(self.seq, start, &[last], Wanted::All)?;
        self.batch.extend(self.seq, start + 1, &self.draft, Wanted::All)?;
        match ctx.decode(&self.batch) {
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) if !self.draft.is_empty() => {
                self.draft.clear();
                self.batch.clear();
                self.batch.extend(self.seq, start, &[last], Wanted::All)?;
                ctx.decode(&self.batch)?;
            }
            result => result?,
        }
        self.next = None;
        self.stats.n_decodes += 1;
        self.stats.n_drafted += self.draft.len() as u64;
        Ok(())
    }

    /// Draw at each position until a drafted token differs or enough tokens are chosen, and roll
    /// the draft back from there on.
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
            self.try_to_roll_back(ctx)?;
        } else if n_right > 0 {
            self.n_draft = self.n_draft.saturating_mul(2).min(self.n_max);
        }
        Ok(end)
    }

    /// End a step in which no token could be drawn after `n_right` accepted ones.
    ///
    /// The tokens chosen stay. The last of them counts as not evaluated, so that the next step
    /// re-evaluates it and draws from its logits, or fails as this one does if it chose nothing.
    fn stop(&mut self, ctx: &mut Context, start: Pos, last: Token, n_right: usize) -> Result<(), Error> {
        self.stats.n_accepted += n_right as u64;
        self.next = Some(self.chosen.last().copied().unwrap_or(last));
        self.end = Some(Pos(start.0 + n_right as i32));
        self.try_to_roll_back(ctx)?;
        if n_right == 0 { Err(Error::NoToken { seq: self.seq.0 }) } else { Ok(()) }
    }

    /// Roll back the rejected tokens that are still in the sequence. After an error there is no
    /// work left if the sequence lost tokens of the text, because what was to come follows those.
    fn roll_back_rejected(&mut self, ctx: &mut Context) -> Result<(), Error> {
        let Some(end) = self.end else { return Ok(()) };
        match ctx.rollback(self.seq, end) {
            Ok(done) => {
                self.stats.n_reevaluated += u64::from(done.reevaluated);
                self.end = None;
                Ok(())
            }
            Err(error) => {
                if ctx.pos(self.seq)? < end {
                    self.reset();
                }
                Err(error)
            }
        }
    }

    /// Roll back the rejected tokens, or leave that to the next step if it fails: the tokens of
    /// this one are chosen. A failure that lost tokens of the text cannot be made up for later.
    fn try_to_roll_back(&mut self, ctx: &mut Context) -> Result<(), Error> {
        match self.roll_back_rejected(ctx) {
            Err(_) if self.end.is_some() => Ok(()),
            result => result,
        }
    }

    /// Evaluate the last token chosen, so that the context is as after plain decoding.
    ///
    /// # Errors
    /// Those of [`Context::append`] and [`Context::rollback`]; the call can be repeated then,
    /// unless the sequence was left at an earlier position, as by [`Speculative::step`].
    pub fn flush(&mut self, ctx: &mut Context) -> Result<(), Error> {
        self.roll_back_rejected(ctx)?;
        if let Some(last) = self.next {
            ctx.append(self.seq, &[last])?;
            self.next = None;
        }
        Ok(())
    }

    /// Forget the last token chosen. The next step begins with the logits of the sequence as it is
    /// then.
    pub fn reset(&mut self) {
        (self.next, self.end) = (None, None);
    }

    /// Stop the drafter when `cancel` asks for it, as [`Drafter::set_cancel`]. The context has a
    /// request of its own ([`Context::set_cancel`]).
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.drafter.set_cancel(cancel);
    }

    /// Decode `seq` from now on, which has `pending` work. The sequence before keeps its tokens.
    pub(crate) fn follow(&mut self, seq: SeqId, pending: Pending) {
        self.seq = seq;
        Pending { next: self.next, end: self.end } = pending;
    }

    /// Return the work still to be done for the sequence.
    pub(crate) fn pending(&self) -> Pending {
        Pending { next: self.next, end: self.end }
    }

    /// Return the last token chosen, if it is not evaluated yet.
    pub fn next(&self) -> Option<Token> {
        self.next
    }

    /// Return the counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

/// Return the number of tokens that a sequence of `len` tokens can still take, if it is the only
/// one: as many as there are cells for, and positions that the model has embeddings for.
pub(crate) fn room_after(ctx: &Context, len: usize) -> usize {
    let n_positions = ctx.model().graph().n_positions().unwrap_or(usize::MAX);
    ctx.room_after(len).min(n_positions.saturating_sub(len))
}

/// A chooser of tokens: it draws them, and is told each token that becomes part of the text.
pub(crate) trait Choose {
    /// Draw the next token; `None` if all are banned.
    fn draw(&mut self, logits: &[f32]) -> Option<Token>;

    /// Take note that `token` was drawn and does not end the text. Break if no further token is
    /// wanted.
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

/// The work that the context still has to do for the tokens chosen for a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The last token chosen, if it is not evaluated yet.
    pub next: Option<Token>,
    /// The end of the sequence, if rejected tokens could not be rolled back yet.
    pub end: Option<Pos>,
}
