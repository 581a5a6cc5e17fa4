//! Branches: a sequence, the chain that samples it, and the chain's state at every position.

use super::finish::Finish;
use crate::error::Error;
use crate::sampler::{Chain, Rng, State, Trail};
use crate::speculative::Pending;
use alloc::{string::String, vec::Vec};
use backstitch_kv::{Pos, SeqId, Token};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The last generation of a branch: its start, the chain's state there, and its end.
#[derive(Clone, Debug)]
pub(super) struct Generated {
    /// The position of its first token. The next three fields are the state of the chain there.
    pub start: Pos,
    pub seed: u64,
    pub rng: Rng,
    pub samplers: Vec<u8>,
    pub finish: Option<Finish>,
    /// The position of the token in which a stop string begins, and the text of that token before
    /// the stop string.
    pub stop: Option<(Pos, String)>,
}

/// A sequence and its chain.
///
/// Between calls the chain has accepted exactly `tokens`, and `trail` can restore its state at
/// every position from `first` on.
#[derive(Debug)]
pub(super) struct Branch {
    pub seq: SeqId,
    pub chain: Chain,
    /// The known tokens, including one that is not evaluated yet.
    pub tokens: Vec<Token>,
    /// The position of the first of `tokens`.
    first: Pos,
    trail: Trail,
    /// The samplers' states at `first`. The trail leaves out those that follow from tokens.
    base: Vec<u8>,
    /// The work that the context still has to do for the tokens drawn.
    pub pending: Pending,
    pub generated: Option<Generated>,
    /// The number of the branch among all that there ever were; ids of sequences are used again.
    number: usize,
    /// The number of changes of the tokens, and of generations that began.
    n_changes: u64,
}

/// The number of branches that there ever were, of all sessions.
static N_BRANCHES: AtomicUsize = AtomicUsize::new(0);

impl Branch {
    /// Make a branch whose sequence holds `tokens` and ends at `end`. `chain` accepts the tokens.
    /// The list of tokens has capacity for `n_ctx`.
    pub fn new(seq: SeqId, mut chain: Chain, tokens: &[Token], end: Pos, n_ctx: usize) -> Self {
        chain.reset_samplers();
        let mut held = Vec::with_capacity(n_ctx.max(tokens.len()));
        held.extend_from_slice(tokens);
        let mut branch = Branch {
            seq,
            chain,
            tokens: held,
            first: Pos(end.0.saturating_sub_unsigned(tokens.len() as u32)),
            trail: Trail::default(),
            base: Vec::new(),
            pending: Pending::default(),
            generated: None,
            number: N_BRANCHES.fetch_add(1, Ordering::Relaxed),
            n_changes: 0,
        };
        branch.start_trail();
        tokens.iter().for_each(|&token| branch.chain.accept(token));
        branch
    }

    /// Return a copy for another sequence.
    pub fn fork(&self, seq: SeqId, n_ctx: usize) -> Self {
        let mut tokens = Vec::with_capacity(n_ctx.max(self.tokens.len()));
        tokens.extend_from_slice(&self.tokens);
        let Branch { first, pending, .. } = *self;
        let (chain, trail, base) = (self.chain.clone(), self.trail.clone(), self.base.clone());
        let number = N_BRANCHES.fetch_add(1, Ordering::Relaxed);
        let generated = self.generated.clone();
        Branch { seq, chain, tokens, first, trail, base, pending, generated, number, n_changes: 0 }
    }

    /// Return a value that tells whether the branch is the same, and its tokens were not changed
    /// since another call returned it.
    pub fn stamp(&self) -> (usize, u64) {
        (self.number, self.n_changes)
    }

    /// Return the position of the next token.
    pub fn end(&self) -> Pos {
        self.pos_of(self.tokens.len())
    }

    /// Return the position behind the tokens that the context has evaluated.
    pub fn end_evaluated(&self) -> Pos {
        self.pos_of(self.tokens.len().saturating_sub(usize::from(self.pending.next.is_some())))
    }

    /// Return the position behind the first `n_tokens` known tokens.
    pub fn pos_of(&self, n_tokens: usize) -> Pos {
        Pos(self.first.0.saturating_add(i32::try_from(n_tokens).unwrap_or(i32::MAX)))
    }

    /// Return the number of known tokens before `pos`.
    fn n_before(&self, pos: Pos) -> usize {
        usize::try_from(pos.0.saturating_sub(self.first.0)).unwrap_or(0)
    }

    /// Return the last known token before `pos`.
    pub fn token_before(&self, pos: Pos) -> Option<Token> {
        self.tokens.get(..self.n_before(pos)).unwrap_or(&self.tokens).last().copied()
    }

    /// Return the length of the prefix that `other` and the branch share.
    pub fn common(&self, other: &[Token]) -> usize {
        if self.first > Pos::ZERO {
            return 0;
        }
        self.tokens.iter().zip(other).take_while(|(a, b)| a == b).count()
    }

    /// Begin the trail anew, with the current state of the chain.
    fn start_trail(&mut self) {
        self.trail = Trail::default();
        self.set_base();
        let (seed, rng) = (self.chain.seed(), self.chain.rng().state());
        self.trail.restart(self.first, seed, rng, |bytes| self.chain.save_drawn(bytes));
    }

    /// Record the samplers' current states as those at `first`.
    fn set_base(&mut self) {
        self.base.clear();
        self.chain.save_samplers(&mut self.base);
    }

    /// Begin to generate at most `n` tokens, and reserve memory for them, so that drawing a token
    /// allocates nothing.
    pub fn begin(&mut self, n: usize) {
        let mut samplers = Vec::new();
        self.chain.save_drawn(&mut samplers);
        self.trail.reserve(n.min(self.tokens.capacity() - self.tokens.len()), samplers.len());
        let (start, seed, rng) = (self.end(), self.chain.seed(), self.chain.rng());
        self.n_changes += 1;
        self.generated = Some(Generated { start, seed, rng, samplers, finish: None, stop: None });
    }

    /// Restore the chain's state at the start of `generated`, where the branch ends.
    pub fn restore_start(&mut self, generated: &Generated) -> Result<(), Error> {
        let Generated { seed, rng, samplers, .. } = generated;
        let saved = [(self.tokens.len(), samplers.as_slice()), (0, self.base.as_slice())];
        self.chain.roll_back(*seed, rng.state(), &self.tokens, saved)?;
        self.restart_trail();
        Ok(())
    }

    /// Record the chain's current state as the one to restore at the end of the branch.
    fn restart_trail(&mut self) {
        let (end, seed, rng) = (self.end(), self.chain.seed(), self.chain.rng().state());
        self.trail.restart(end, seed, rng, |bytes| self.chain.save_drawn(bytes));
    }

    /// Record the samplers' states, before tokens that are accepted without being drawn.
    pub fn checkpoint(&mut self) {
        let end = self.end();
        self.trail.checkpoint(end, |bytes| self.chain.save_drawn(bytes));
    }

    /// Draw the next token.
    pub fn draw(&mut self, logits: &[f32]) -> Option<Token> {
        self.checkpoint();
        self.trail.draw(self.end(), self.chain.seed(), self.chain.rng().state());
        self.chain.sample(logits)
    }

    /// Add a token.
    pub fn push(&mut self, token: Token) {
        self.chain.accept(token);
        self.tokens.push(token);
        self.n_changes += 1;
    }

    /// Draw with other random numbers from the end on.
    pub fn reseed(&mut self, seed: u64, rng: Rng) {
        self.chain.draw_from(seed, rng);
        self.restart_trail();
    }

    /// Remove the tokens from `held` on, where the sequence ends now, with all work that was still
    /// to be done for them, and restore the chain's state there.
    ///
    /// # Errors
    /// Those of [`Chain::roll_back`].
    pub fn cut(&mut self, held: Pos) -> Result<(), Error> {
        self.pending = Pending::default();
        self.truncate(held)
    }

    /// Remove the tokens from `pos` on, and restore the chain's state there.
    ///
    /// # Errors
    /// Those of [`Chain::roll_back`].
    fn truncate(&mut self, pos: Pos) -> Result<(), Error> {
        if pos >= self.end() {
            return Ok(());
        }
        self.tokens.truncate(self.n_before(pos));
        self.n_changes += 1;
        self.generated.take_if(|generated| generated.start > pos);
        self.generated.iter_mut().for_each(|generated| generated.stop = None);
        let known = pos.max(self.first);
        self.trail.truncate(known);
        if let Some(past) = self.trail.at(known) {
            let (from, saved) = past.samplers.unwrap_or((self.first, &[]));
            let saved = [(self.n_before(from), saved), (0, self.base.as_slice())];
            self.chain.roll_back(past.seed, past.rng, &self.tokens, saved)?;
        }
        if pos < self.first {
            // The tokens before the first known one are removed too.
            self.first = pos;
            self.start_trail();
        }
        Ok(())
    }

    /// Sample with another chain. The recorded states of the samplers before mean nothing to its
    /// samplers, so after a rollback their states follow from the tokens.
    pub fn replace_chain(&mut self, mut chain: Chain) {
        chain.reset_samplers();
        self.chain = chain;
        self.set_base();
        self.tokens.iter().for_each(|&token| self.chain.accept(token));
        self.trail.clear_samplers();
        self.generated.iter_mut().for_each(|generated| generated.samplers.clear());
        self.restart_trail();
    }

    /// Return the chain's state, and its earlier ones.
    pub fn state(&self) -> State {
        State { trail: self.trail.clone(), ..self.chain.state() }
    }

    /// Continue from `state`, or from the seed if there is none. States of samplers that it lacks
    /// follow from the tokens.
    ///
    /// # Errors
    /// Those of [`Chain::resume`]; [`Error::NoSamplerState`] only if the tokens are not known.
    pub fn resume(&mut self, state: Option<&State>) -> Result<(), Error> {
        let is_known = !self.tokens.is_empty() || self.first == Pos::ZERO;
        let Some(state) = state else {
            return if is_known { Ok(()) } else { self.chain.expect_no_state() };
        };
        if is_known {
            self.chain.resume_after(state, &self.tokens)?;
        } else {
            self.chain.resume(state)?;
            self.set_base();
        }
        self.trail = state.trail.clone();
        if self.trail.at(self.first).is_none() {
            self.trail = Trail::default();
            // The samplers have these states at the end alone. Before it, their states follow from
            // the tokens.
            let (seed, rng, is_end) = (state.seed, state.rng, self.tokens.is_empty());
            self.trail.restart(self.first, seed, rng, |bytes| {
                if is_end {
                    self.chain.save_drawn(bytes);
                }
            });
        }
        // A token that ended the text was drawn at the end, and not added. Its random number counts
        // at later positions.
        self.trail.truncate(self.pos_of(self.tokens.len() + 1));
        Ok(())
    }
}
