//! Conversations and texts that grow, branch and are taken back: the layer above [`Context`] for programs.
//!
//! A [`Session`] owns a context. Each of its *branches* is a sequence with a chain of samplers of its own,
//! and one of them is the current one, to which most methods apply:
//!
//! | to | call |
//! |---|---|
//! | turn text into tokens | [`Session::tokenize`], [`Session::tokenize_behind`] |
//! | evaluate a prompt, or more text | [`Session::prompt`], [`Session::feed`] |
//! | make it hold these tokens, keeping the common beginning | [`Session::hold`] |
//! | generate | [`Session::generate`] |
//! | get another answer | [`Session::regenerate`] |
//! | change what was said | [`Session::rollback`], [`Session::edit`] |
//! | try two ways | [`Session::branch`], [`Session::switch`] |
//! | keep it | [`Session::save`], [`Session::save_all`] |
//!
//! The samplers go back with the tokens: after a rollback to a position, random numbers, penalties and
//! samplers' own states are what they were when the branch first came there, so that the same seed tells
//! the same text again. What a branch holds and generates depends on its own tokens, chain and seed alone,
//! bit for bit, not on what was done in between.
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
//! let mut story = String::new();
//! for piece in session.generate(GenerateOptions::default().limit(40).stop(".")) {
//!     story += &piece?.text;
//! }
//! assert!(story.starts_with(',') && !story.contains('.'));
//! assert!(matches!(session.finish(), Some(Finish::Stop { index: 0 })));
//!
//! // The same again, and another one beside it.
//! session.regenerate(Randomness::Repeat)?;
//! let other = session.branch()?;
//! let again = session.generate(GenerateOptions::default().limit(40).stop("."));
//! assert_eq!(again.map(|piece| Ok(piece?.text)).collect::<Result<String, backstitch_models::Error>>()?,
//! story); session.switch(other)?.reseed(2);
//! assert_eq!(session.generate(GenerateOptions::default().limit(5)).count(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod branch;
mod change;
mod generate;
mod prompt;
#[cfg(feature = "std")]
mod saving;
mod text;

pub use change::{Held, Randomness};
pub use generate::{Finish, GenerateOptions, Generation, Piece, TokenLogprobs};

use crate::cancel::Cancel;
use crate::context::{Context, Restored, Rollback};
use crate::error::Error;
use crate::graph::Head;
use crate::sampler::{Chain, Settings, State};
use crate::speculative::{self, Drafter, Speculative};
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::{Pos, SeqId, Token};
use branch::Branch;
use core::fmt;

/// Branches of text in one context, each with its chain of samplers; see the [module](self).
///
/// Every method either does what it says or leaves all branches as they were, with the exceptions that its
/// errors name.
pub struct Session {
    ctx: Context,
    /// The current branch.
    here: Branch,
    others: Vec<Branch>,
    cancel: Option<Cancel>,
    speculative: Guessing,
    buffers: generate::Buffers,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("branches", &self.branches())
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

/// The most tokens that one sequence of `ctx` can hold, if there is a limit.
fn limit_of(ctx: &Context) -> Option<usize> {
    Some(ctx.room_after(0)).filter(|&room| room < usize::MAX)
}

impl Session {
    /// Make a session with one empty branch in an empty context.
    ///
    /// # Errors
    /// [`Error::LogitBias`] if `settings` name a token that does not exist; as [`Session::with_chain`].
    pub fn new(ctx: Context, settings: &Settings) -> Result<Self, Error> {
        let n_vocab = ctx.model().hparams().n_vocab;
        settings.check(n_vocab)?;
        Self::with_chain(ctx, Chain::new(n_vocab, settings))
    }

    /// Make a session with one empty branch in an empty context, continued by a chain of one's own.
    ///
    /// # Errors
    /// [`Error::EncoderOnly`] if the model generates no text; [`Error::TooManySequences`] if the context
    /// has sequences; [`Error::OutOfMemory`].
    pub fn with_chain(mut ctx: Context, chain: Chain) -> Result<Self, Error> {
        let seq = ctx.sequence()?;
        let branch = Branch::new(seq, chain, &[], Pos::ZERO, ctx.params().n_ctx as usize);
        Self::assemble(ctx, branch, Vec::new())
    }

    /// Make a session of the sequences that were restored into `ctx`, the first of which is the current
    /// branch. Each goes on with samplers as those of `chain`, from where its own stood when it was saved;
    /// from the seed of `chain` if nothing was saved of them. Samplers with a state that was not saved accept
    /// the tokens held.
    ///
    /// # Errors
    /// [`Error::EncoderOnly`] if the model generates no text, [`Error::Sequence`] if there is none, what
    /// [`Chain::resume_after`] says, and [`Error::NoSamplerState`] if a state was not saved and the tokens are
    /// not known, because the sequence was edited in its middle.
    pub fn adopt(ctx: Context, chain: &Chain, restored: &Restored) -> Result<Self, Error> {
        let n_ctx = ctx.params().n_ctx as usize;
        let mut branches = restored.sequences.iter().map(|sequence| {
            let tokens = ctx.tokens(sequence.seq)?;
            let mut branch = Branch::new(sequence.seq, chain.clone(), tokens, sequence.end, n_ctx);
            branch.resume(sequence.sampler.as_ref()).map(|()| branch)
        });
        let here = branches.next().ok_or(Error::Sequence { seq: 0 })??;
        let others = branches.collect::<Result<_, Error>>()?;
        Self::assemble(ctx, here, others)
    }

    fn assemble(ctx: Context, here: Branch, others: Vec<Branch>) -> Result<Self, Error> {
        if ctx.model().graph().head() == Head::Embeddings {
            return Err(Error::EncoderOnly);
        }
        let speculative = Speculative::new(None, here.seq, 0);
        let buffers = generate::Buffers::default();
        Ok(Session { ctx, here, others, cancel: None, speculative, buffers })
    }

    /// Return the context, to look at.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Return the context; its sequences are the branches.
    ///
    /// # Errors
    /// Those of [`Session::settle`].
    pub fn into_context(mut self) -> Result<Context, Error> {
        self.settle_all()?;
        Ok(self.ctx)
    }

    /// Look at `cancel` from now on, as [`Context::set_cancel`]; a generation then ends with
    /// [`Finish::Cancelled`].
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.ctx.set_cancel(cancel.clone());
        self.cancel = cancel;
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Guess at most `n` tokens at once with `drafter` from now on, for all branches; `None`: guess no
    /// more. Guesses decide about speed only.
    pub fn set_drafter(&mut self, drafter: Option<Box<dyn Drafter + Send>>, n: usize) {
        self.speculative = Speculative::new(drafter, self.current(), n);
    }

    /// Return what guessing has done since the drafter was set.
    pub fn guesses(&self) -> speculative::Stats {
        self.speculative.stats()
    }

    // Branches.

    /// Return the ids of all branches, ascending.
    pub fn branches(&self) -> Vec<SeqId> {
        let mut ids: Vec<SeqId> = self.others.iter().map(|branch| branch.seq).collect();
        ids.push(self.here.seq);
        ids.sort_unstable();
        ids
    }

    /// Return the id of the current branch.
    pub fn current(&self) -> SeqId {
        self.here.seq
    }

    /// Make `branch` the current one.
    ///
    /// # Errors
    /// [`Error::Sequence`] if there is no such branch.
    pub fn switch(&mut self, branch: SeqId) -> Result<&mut Self, Error> {
        if branch != self.here.seq {
            let other = self.others.iter_mut().find(|other| other.seq == branch);
            core::mem::swap(&mut self.here, other.ok_or(Error::Sequence { seq: branch.0 })?);
        }
        Ok(self)
    }

    /// Make a branch that holds what the current one holds, and whose chain stands where its chain stands.
    /// The current branch stays so. Nothing is copied until one of them changes.
    ///
    /// # Errors
    /// Those of [`Context::fork`] and [`Session::settle`].
    pub fn branch(&mut self) -> Result<SeqId, Error> {
        self.settle()?;
        let seq = self.ctx.fork(self.here.seq)?;
        self.others.push(self.here.fork(seq, self.ctx.params().n_ctx as usize));
        Ok(seq)
    }

    /// Make an empty branch with samplers as those of the current one, from the beginning of their random
    /// numbers. The current branch stays so.
    ///
    /// # Errors
    /// Those of [`Context::sequence`].
    pub fn empty_branch(&mut self) -> Result<SeqId, Error> {
        let seq = self.ctx.sequence()?;
        let mut chain = self.here.chain.clone();
        chain.reset();
        let n_ctx = self.ctx.params().n_ctx as usize;
        self.others.push(Branch::new(seq, chain, &[], Pos::ZERO, n_ctx));
        Ok(seq)
    }

    /// Drop `branch`. If it is the current one, the one with the lowest id becomes current.
    ///
    /// # Errors
    /// [`Error::Sequence`] if there is no such branch; [`Error::LastBranch`] if there is no other.
    pub fn remove(&mut self, branch: SeqId) -> Result<(), Error> {
        if branch == self.here.seq {
            let next = self.others.iter().map(|other| other.seq).min();
            self.switch(next.ok_or(Error::LastBranch { seq: branch.0 })?)?;
        }
        let place = self.others.iter().position(|other| other.seq == branch);
        let place = place.ok_or(Error::Sequence { seq: branch.0 })?;
        self.ctx.release(branch)?;
        self.others.remove(place);
        Ok(())
    }

    // What the current branch holds.

    /// Return the tokens of the current branch, as far as they are known: all, unless it was restored from
    /// a sequence that had been edited in its middle.
    pub fn tokens(&self) -> &[Token] {
        &self.here.tokens
    }

    /// Return the position of the next token of the current branch.
    pub fn pos(&self) -> Pos {
        self.here.end()
    }

    /// Return why the last generation of the current branch ended; `None` if it did not, or what it began
    /// with was taken back.
    pub fn finish(&self) -> Option<Finish> {
        self.here.generated.as_ref()?.finish
    }

    /// Return the chain that continues the current branch.
    pub fn chain(&self) -> &Chain {
        &self.here.chain
    }

    /// Continue the current branch with `chain`, which accepts all tokens held. A rollback takes the chain
    /// back to where it is set; before that, it stands with the random numbers that the chain before had
    /// there.
    pub fn set_chain(&mut self, chain: Chain) {
        self.here.replace_chain(chain);
    }

    /// Return the logits after the last token of the current branch, evaluating it if they are not at hand.
    ///
    /// # Errors
    /// [`Error::NoLogits`] if the branch is empty; as [`Session::settle`].
    pub fn logits(&mut self) -> Result<&[f32], Error> {
        self.settle()?;
        self.ctx.logits(self.here.seq)
    }

    /// Evaluate the last token generated, if it is not yet. Methods that need that do it themselves.
    ///
    /// # Errors
    /// Those of [`Context::append`], if there is no room for it or a request to stop came. It remains part of the
    /// branch, and this can be tried again.
    pub fn settle(&mut self) -> Result<(), Error> {
        settle(&mut self.speculative, &mut self.ctx, &mut self.here)
    }

    fn settle_all(&mut self) -> Result<(), Error> {
        let Session { ctx, speculative, here, others, .. } = self;
        let mut all = others.iter_mut().chain([here]);
        all.try_for_each(|branch| settle(speculative, ctx, branch))
    }

    /// Return where the chains of all branches stand, to be saved beside their sequences
    /// ([`SaveOptions::samplers`](crate::SaveOptions::samplers)). Everything generated is evaluated then.
    ///
    /// # Errors
    /// Those of [`Session::settle`].
    pub fn states(&mut self) -> Result<Vec<(SeqId, State)>, Error> {
        self.settle_all()?;
        let all = self.others.iter().chain([&self.here]);
        Ok(all.map(|branch| (branch.seq, branch.state())).collect())
    }
}

type Guessing = Speculative<Option<Box<dyn Drafter + Send>>>;

fn settle(speculative: &mut Guessing, ctx: &mut Context, branch: &mut Branch) -> Result<(), Error> {
    speculative.follow(branch.seq, branch.unsettled);
    let result = speculative.flush(ctx);
    branch.unsettled = speculative.unsettled();
    result
}

/// A rollback that had nothing to do.
fn no_rollback(pos: Pos) -> Rollback {
    Rollback { restored_from: pos, replayed: 0, reevaluated: 0 }
}
