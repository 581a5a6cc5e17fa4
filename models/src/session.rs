//! Sessions: texts that grow, branch and are rolled back. This is the layer above [`Context`] for
//! programs.
//!
//! A [`Session`] owns a context. Each of its *branches* is a sequence with its own chain of
//! samplers. One branch is the current one, and most methods apply to it:
//!
//! | to | call |
//! |---|---|
//! | tokenise text | [`Session::tokenize`], [`Session::tokenize_behind`] |
//! | evaluate a prompt, or more text | [`Session::prompt`], [`Session::feed`] |
//! | set all tokens, reusing the common prefix | [`Session::set_tokens`] |
//! | generate | [`Session::generate`]; in several branches by turns: [`Generation::pause`] |
//! | get another answer | [`Session::regenerate`] |
//! | change earlier text | [`Session::rollback`], [`Session::edit`] |
//! | try two continuations | [`Session::branch`], [`Session::switch`] |
//! | save to disk | [`Session::save`], [`Session::save_all`] |
//!
//! A rollback takes the samplers back with the tokens. At a position, random numbers, penalties and
//! the samplers' own states are what they were when the branch first reached it, so the same seed
//! generates the same text again. The tokens of a branch depend on its own prompt, chain and seed
//! alone, bit for bit, and not on anything done in between.
//!
//! ```
//! use backstitch_models::session::{Finish, GenerateOptions, Randomness, Session};
//! use backstitch_models::sampler::Settings;
//! use backstitch_models::vocab::ParseSpecial;
//! use backstitch_models::{Context, Model, Params};
//!
//! let model = Model::from_bytes(backstitch_demo::GGUF)?;
//! let ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(2))?;
//! let mut session = Session::new(ctx, &Settings::default().seed(1))?;
//! session.prompt(&session.tokenize("Once upon a time", ParseSpecial::No))?;
//!
//! let options = GenerateOptions::default().limit(40).stop(".");
//! let mut text = String::new();
//! for chunk in session.generate(options.clone()) {
//!     text += &chunk?.text;
//! }
//! assert!(text.starts_with(',') && !text.contains('.'));
//! assert!(matches!(session.finish(), Some(Finish::Stop { index: 0 })));
//!
//! // Generate the same text again, after branching off.
//! session.regenerate(Randomness::Repeat)?;
//! let other = session.branch()?;
//! let mut again = String::new();
//! for chunk in session.generate(options) {
//!     again += &chunk?.text;
//! }
//! assert_eq!(again, text);
//!
//! // Generate another text in the other branch.
//! session.switch(other)?.reseed(2);
//! assert_eq!(session.generate(GenerateOptions::default().limit(5)).count(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod branch;
mod change;
mod chunk;
mod finish;
mod generate;
mod pause;
mod prompt;
#[cfg(feature = "std")]
mod saving;
mod text;

pub use change::{PrefixReuse, Randomness};
pub use chunk::{Chunk, TokenLogprobs};
pub use finish::Finish;
pub use generate::{GenerateOptions, Generation};
pub use pause::PausedGeneration;
pub use text::{OutputText, StopMatch};

use crate::cancel::Cancel;
use crate::context::{Context, Restored, Rollback};
use crate::error::Error;
use crate::graph::Head;
use crate::runner::outputs::SharedLogits;
use crate::sampler::{Chain, Settings, State};
use crate::speculative::{self, Drafter, Speculative, room_after};
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::{Pos, SeqId, Token};
use branch::Branch;
use chunk::Buffers;
use core::fmt;

/// Branches of text in one context, each with its chain of samplers; see the [module](self).
///
/// Every method either does what it says or leaves all branches as they were, with the exceptions
/// that its `# Errors` section names. One of them is common to all methods that re-evaluate tokens,
/// as [`Context::rollback`] and [`Context::logits`] may have to: in a cache without a free block, a
/// failure can shorten the branch. [`Session::pos`] is its end then, and the chain has the state
/// that it had there. The last token of a generation is drawn but may not be
/// evaluated yet. Methods that need its logits evaluate it first ([`Session::evaluate_pending`]).
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5), Token(6), Token(7)])?;
/// let start = session.pos();
/// session.feed(&[Token(8)])?;
/// session.rollback(start)?;
/// assert_eq!(session.tokens(), [Token(5), Token(6), Token(7)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    ctx: Context,
    /// The current branch.
    current: Branch,
    others: Vec<Branch>,
    cancel: Option<Cancel>,
    speculative: BoxedSpeculative,
    buffers: Buffers,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("branches", &self.branches())
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

/// Return the most tokens that one sequence of `ctx` can hold, if there is a limit.
fn limit_of(ctx: &Context) -> Option<usize> {
    Some(room_after(ctx, 0)).filter(|&room| room < usize::MAX)
}

impl Session {
    /// Make a session with one empty branch in an empty context. Tokens that the model's file wants
    /// suppressed are never drawn.
    ///
    /// # Errors
    /// [`Error::LogitBias`] if `settings` name a token that does not exist; those of
    /// [`Session::with_chain`].
    pub fn new(ctx: Context, settings: &Settings) -> Result<Self, Error> {
        let n_vocab = ctx.model().hparams().n_vocab;
        settings.check(n_vocab)?;
        let chain = Chain::new(n_vocab, &settings.clone().suppress(ctx.model().vocab()));
        Self::with_chain(ctx, chain)
    }

    /// Make a session with one empty branch in an empty context, sampled by `chain`.
    ///
    /// # Errors
    /// [`Error::EncoderOnly`] if the model generates no text; [`Error::TooManySequences`] if all
    /// sequences of the context are in use; [`Error::OutOfMemory`].
    pub fn with_chain(mut ctx: Context, chain: Chain) -> Result<Self, Error> {
        let seq = ctx.sequence()?;
        let branch = Branch::new(seq, chain, &[], Pos::ZERO, ctx.params().n_ctx as usize);
        Self::assemble(ctx, branch, Vec::new())
    }

    /// Make a session of the sequences that were restored into `ctx`: of one by
    /// [`Context::restore`], or of all by [`Context::restore_all`], each under the id that it had.
    /// The first of them is the current branch.
    ///
    /// Each branch gets a copy of `chain` in the state that was saved for it, or at the seed of
    /// `chain` if none was saved. Samplers whose state was not saved accept the tokens of the
    /// sequence.
    ///
    /// # Errors
    /// [`Error::EncoderOnly`] if the model generates no text; [`Error::Sequence`] if nothing was
    /// restored; those of [`Chain::resume_after`]. [`Error::NoSamplerState`] if a state was not
    /// saved and the tokens are not known, because the sequence was edited in its middle.
    pub fn adopt(ctx: Context, chain: &Chain, restored: &Restored) -> Result<Self, Error> {
        let n_ctx = ctx.params().n_ctx as usize;
        let mut branches = restored.sequences.iter().map(|sequence| {
            let tokens = ctx.tokens(sequence.seq)?;
            let mut branch = Branch::new(sequence.seq, chain.clone(), tokens, sequence.end, n_ctx);
            branch.resume(sequence.sampler.as_ref()).map(|()| branch)
        });
        let current = branches.next().ok_or(Error::Sequence { seq: 0 })??;
        let others = branches.collect::<Result<_, Error>>()?;
        Self::assemble(ctx, current, others)
    }

    fn assemble(ctx: Context, current: Branch, others: Vec<Branch>) -> Result<Self, Error> {
        if ctx.model().graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        let speculative = Speculative::new(None, current.seq, 0);
        let buffers = Buffers::default();
        Ok(Session { ctx, current, others, cancel: None, speculative, buffers })
    }

    /// Return the context for reading.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Return the context. Its sequences are the branches.
    ///
    /// # Errors
    /// Those of [`Session::evaluate_pending`].
    pub fn into_context(mut self) -> Result<Context, Error> {
        self.evaluate_all_pending()?;
        Ok(self.ctx)
    }

    /// Stop computations, also those of the drafter, when `cancel` asks for it, as
    /// [`Context::set_cancel`]. A generation then ends with [`Finish::Cancelled`].
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.ctx.set_cancel(cancel.clone());
        self.speculative.set_cancel(cancel.clone());
        self.cancel = cancel;
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Draft at most `n` tokens per step with `drafter` from now on, for all branches; `None` ends
    /// drafting. Drafts change the speed and never the text; see
    /// [`speculative`].
    pub fn set_drafter(&mut self, drafter: Option<Box<dyn Drafter + Send>>, n: usize) {
        self.speculative = Speculative::new(drafter, self.current(), n);
        self.speculative.set_cancel(self.cancel.clone());
    }

    /// Return the counts of drafted and accepted tokens since the drafter was set.
    pub fn draft_stats(&self) -> speculative::Stats {
        self.speculative.stats()
    }

    // Branches.

    /// Return the ids of all branches, ascending.
    pub fn branches(&self) -> Vec<SeqId> {
        let mut ids: Vec<SeqId> = self.others.iter().map(|branch| branch.seq).collect();
        ids.push(self.current.seq);
        ids.sort_unstable();
        ids
    }

    /// Return the id of the current branch.
    pub fn current(&self) -> SeqId {
        self.current.seq
    }

    /// Make `branch` the current one.
    ///
    /// # Errors
    /// [`Error::Sequence`] if there is no such branch.
    pub fn switch(&mut self, branch: SeqId) -> Result<&mut Self, Error> {
        if branch != self.current.seq {
            let other = self.others.iter_mut().find(|other| other.seq == branch);
            core::mem::swap(&mut self.current, other.ok_or(Error::Sequence { seq: branch.0 })?);
        }
        Ok(self)
    }

    /// Make a branch with the same tokens and the same state of the chain as the current one, which
    /// stays current. Nothing is copied until one of them changes.
    ///
    /// # Errors
    /// Those of [`Context::fork`] and [`Session::evaluate_pending`].
    pub fn branch(&mut self) -> Result<SeqId, Error> {
        self.evaluate_pending()?;
        let seq = self.ctx.fork(self.current.seq)?;
        self.others.push(self.current.fork(seq, self.ctx.params().n_ctx as usize));
        Ok(seq)
    }

    /// Make an empty branch with the samplers of the current one, at the beginning of their random
    /// numbers. The current branch stays current.
    ///
    /// # Errors
    /// Those of [`Context::sequence`].
    pub fn empty_branch(&mut self) -> Result<SeqId, Error> {
        let seq = self.ctx.sequence()?;
        let mut chain = self.current.chain.clone();
        chain.reset();
        let n_ctx = self.ctx.params().n_ctx as usize;
        self.others.push(Branch::new(seq, chain, &[], Pos::ZERO, n_ctx));
        Ok(seq)
    }

    /// Remove `branch`. If it is the current one, the branch with the lowest id becomes current.
    ///
    /// # Errors
    /// [`Error::Sequence`] if there is no such branch; [`Error::LastBranch`] if there is no other.
    pub fn remove(&mut self, branch: SeqId) -> Result<(), Error> {
        if branch == self.current.seq {
            let next = self.others.iter().map(|other| other.seq).min();
            self.switch(next.ok_or(Error::LastBranch { seq: branch.0 })?)?;
        }
        let place = self.others.iter().position(|other| other.seq == branch);
        let place = place.ok_or(Error::Sequence { seq: branch.0 })?;
        self.ctx.release(branch)?;
        self.others.remove(place);
        Ok(())
    }

    // The contents of the current branch.

    /// Return the known tokens of the current branch. These are all, unless it was restored from a
    /// sequence that had been edited in its middle.
    pub fn tokens(&self) -> &[Token] {
        &self.current.tokens
    }

    /// Return the position of the next token of the current branch.
    pub fn pos(&self) -> Pos {
        self.current.end()
    }

    /// Return the reason that the last generation of the current branch ended; `None` if it did not
    /// end, or was rolled back.
    pub fn finish(&self) -> Option<Finish> {
        self.current.generated.as_ref()?.finish
    }

    /// Return the chain that samples the current branch.
    pub fn chain(&self) -> &Chain {
        &self.current.chain
    }

    /// Sample the current branch with `chain`, which accepts all tokens of the branch.
    ///
    /// A rollback to a later position restores this chain's state there. A rollback to an earlier
    /// one gives the chain the random numbers that the chain before had at that position.
    pub fn set_chain(&mut self, chain: Chain) {
        self.current.replace_chain(chain);
    }

    /// Return the logits after the last token of the current branch, evaluating the token if
    /// needed.
    ///
    /// # Errors
    /// [`Error::NoLogits`] if the branch is empty; those of [`Session::evaluate_pending`] and
    /// [`Context::logits`], after which the branch can be shorter.
    pub fn logits(&mut self) -> Result<&[f32], Error> {
        self.evaluate_pending()?;
        let result = self.ctx.logits(self.current.seq).map(|_| ());
        keep_up(&self.ctx, &mut self.current, result)?;
        self.ctx.logits(self.current.seq)
    }

    /// Return the logits after the last token of the current branch, as [`Session::logits`] does,
    /// to be held as long as the caller likes, without a copy of them.
    ///
    /// # Errors
    /// Those of [`Session::logits`].
    pub fn shared_logits(&mut self) -> Result<SharedLogits, Error> {
        self.evaluate_pending()?;
        let result = self.ctx.shared_logits(self.current.seq);
        keep_up(&self.ctx, &mut self.current, result)
    }

    /// Evaluate the last token generated, if it is still pending. Methods that need this do it
    /// themselves.
    ///
    /// # Errors
    /// Those of [`Context::append`], if no cell is free or a request to cancel came. The token
    /// stays in the branch, and the call can be repeated. Those of [`Context::rollback`] if
    /// rejected draft tokens are still to be rolled back; the branch can be shorter then.
    pub fn evaluate_pending(&mut self) -> Result<(), Error> {
        evaluate_pending(&mut self.speculative, &mut self.ctx, &mut self.current)
    }

    fn evaluate_all_pending(&mut self) -> Result<(), Error> {
        let Session { ctx, speculative, current, others, .. } = self;
        let mut all = others.iter_mut().chain([current]);
        all.try_for_each(|branch| evaluate_pending(speculative, ctx, branch))
    }

    /// Return the states of the chains of all branches, to be saved beside their sequences
    /// ([`SaveOptions::samplers`](crate::SaveOptions::samplers)). Pending tokens are evaluated
    /// first.
    ///
    /// # Errors
    /// Those of [`Session::evaluate_pending`].
    pub fn states(&mut self) -> Result<Vec<(SeqId, State)>, Error> {
        self.evaluate_all_pending()?;
        let all = self.others.iter().chain([&self.current]);
        Ok(all.map(|branch| (branch.seq, branch.state())).collect())
    }
}

type BoxedSpeculative = Speculative<Option<Box<dyn Drafter + Send>>>;

fn evaluate_pending(
    speculative: &mut BoxedSpeculative,
    ctx: &mut Context,
    branch: &mut Branch,
) -> Result<(), Error> {
    speculative.follow(branch.seq, branch.pending);
    let result = speculative.flush(ctx);
    branch.pending = speculative.pending();
    keep_up(ctx, branch, result)
}

/// Return the result of an operation on the context. If it failed and left the sequence of `branch`
/// at an earlier position, as [`Context::rollback`] documents, the branch loses the same tokens.
fn keep_up<T>(ctx: &Context, branch: &mut Branch, result: Result<T, Error>) -> Result<T, Error> {
    if result.is_err() {
        let held = ctx.pos(branch.seq)?;
        if held < branch.end_evaluated() {
            branch.cut(held)?;
        }
    }
    result
}

/// Return the outcome of a rollback that had nothing to do.
fn no_rollback(pos: Pos) -> Rollback {
    Rollback { restored_from: pos, replayed: 0, reevaluated: 0 }
}
