//! One branch: a sequence, the chain that continues it, and where that stood at every position.

use super::Finish;
use crate::error::Error;
use crate::sampler::{Chain, Rng, State, Trail};
use crate::speculative::Unsettled;
use alloc::{string::String, vec::Vec};
use backstitch_kv::{Pos, SeqId, Token};

/// The last thing that was generated.
#[derive(Clone, Debug)]
pub(super) struct Generated {
    /// Where it begins, and where the chain stood there.
    pub start: Pos,
    pub seed: u64,
    pub rng: Rng,
    pub samplers: Vec<u8>,
    pub finish: Option<Finish>,
    /// Where the token lies in which a stop string begins, and the text between the two.
    pub stop: Option<(Pos, String)>,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub seq: SeqId,
    pub chain: Chain,
    /// The tokens that are known, those not yet evaluated among them.
    pub tokens: Vec<Token>,
    /// The position of the first of `tokens`.
    first: Pos,
    trail: Trail,
    /// What the context still has to do.
    pub unsettled: Unsettled,
    pub generated: Option<Generated>,
}

impl Branch {
    /// A branch whose sequence holds `tokens` and ends at `end`; `chain` accepts them. It has room for
    /// `n_ctx`.
    pub fn new(seq: SeqId, mut chain: Chain, tokens: &[Token], end: Pos, n_ctx: usize) -> Self {
        chain.forget();
        let mut held = Vec::with_capacity(n_ctx.max(tokens.len()));
        held.extend_from_slice(tokens);
        let mut branch = Branch {
            seq,
            chain,
            tokens: held,
            first: Pos(end.0.saturating_sub_unsigned(tokens.len() as u32)),
            trail: Trail::default(),
            unsettled: Unsettled::default(),
            generated: None,
        };
        branch.start_trail();
        tokens.iter().for_each(|&token| branch.chain.accept(token));
        branch
    }

    /// A copy for another sequence.
    pub fn fork(&self, seq: SeqId, n_ctx: usize) -> Self {
        let mut tokens = Vec::with_capacity(n_ctx.max(self.tokens.len()));
        tokens.extend_from_slice(&self.tokens);
        let Branch { first, unsettled, .. } = *self;
        let (chain, trail, generated) = (self.chain.clone(), self.trail.clone(), self.generated.clone());
        Branch { seq, chain, tokens, first, trail, unsettled, generated }
    }

    /// Where the next token goes.
    pub fn end(&self) -> Pos {
        self.pos_of(self.tokens.len())
    }

    pub fn pos_of(&self, n_tokens: usize) -> Pos {
        Pos(self.first.0.saturating_add(i32::try_from(n_tokens).unwrap_or(i32::MAX)))
    }

    /// The number of known tokens before `pos`.
    fn n_before(&self, pos: Pos) -> usize {
        usize::try_from(pos.0.saturating_sub(self.first.0)).unwrap_or(0)
    }

    /// How many tokens `other` and the branch begin with alike.
    pub fn common(&self, other: &[Token]) -> usize {
        if self.first > Pos::ZERO {
            return 0;
        }
        self.tokens.iter().zip(other).take_while(|(a, b)| a == b).count()
    }

    /// Draws from the random numbers that the chain now has, from the end on.
    fn start_trail(&mut self) {
        self.trail = Trail::default();
        let (seed, rng) = (self.chain.seed(), self.chain.rng().state());
        self.trail.set(self.first, seed, rng, |bytes| self.chain.save_samplers(bytes));
    }

    /// Begins to generate at most `n` tokens, and makes room for them, so that drawing one allocates nothing.
    pub fn begin(&mut self, n: usize) {
        let mut samplers = Vec::new();
        self.chain.save_samplers(&mut samplers);
        self.trail.reserve(n.min(self.tokens.capacity() - self.tokens.len()), samplers.len());
        let (start, seed, rng) = (self.end(), self.chain.seed(), self.chain.rng());
        self.generated = Some(Generated { start, seed, rng, samplers, finish: None, stop: None });
    }

    /// Stands where it stood when it began to generate, at whose start the branch ends.
    pub fn stand_as(&mut self, generated: &Generated) -> Result<(), Error> {
        let Generated { seed, rng, samplers, .. } = generated;
        let n_accepted = if samplers.is_empty() { 0 } else { self.tokens.len() };
        self.chain.rewind(*seed, rng.state(), &self.tokens, (n_accepted, samplers))?;
        self.set();
        Ok(())
    }

    /// Notes that the chain stands here as it does now whenever it comes back.
    fn set(&mut self) {
        let (end, seed, rng) = (self.end(), self.chain.seed(), self.chain.rng().state());
        self.trail.set(end, seed, rng, |bytes| self.chain.save_samplers(bytes));
    }

    /// Notes where the samplers stand: what comes is accepted without being drawn.
    pub fn mark(&mut self) {
        let end = self.end();
        self.trail.mark(end, |bytes| self.chain.save_samplers(bytes));
    }

    /// Draws the next token.
    pub fn draw(&mut self, logits: &[f32]) -> Option<Token> {
        self.mark();
        self.trail.draw(self.end(), self.chain.seed(), self.chain.rng().state());
        self.chain.sample(logits)
    }

    /// Adds a token.
    pub fn push(&mut self, token: Token) {
        self.chain.accept(token);
        self.tokens.push(token);
    }

    /// Takes other random numbers from here on.
    pub fn reseed(&mut self, seed: u64, rng: Rng) {
        self.chain.draw_from(seed, rng);
        self.set();
    }

    /// Forgets what lies from `pos` on; the chain stands where it stood there.
    pub fn cut(&mut self, pos: Pos) -> Result<(), Error> {
        if pos >= self.end() {
            return Ok(());
        }
        self.tokens.truncate(self.n_before(pos));
        self.generated.take_if(|generated| generated.start > pos);
        self.generated.iter_mut().for_each(|generated| generated.stop = None);
        let known = pos.max(self.first);
        self.trail.cut(known);
        if let Some(stand) = self.trail.at(known) {
            let (from, saved) = stand.samplers.unwrap_or((self.first, &[]));
            let n_accepted = self.n_before(from);
            self.chain.rewind(stand.seed, stand.rng, &self.tokens, (n_accepted, saved))?;
        }
        if pos < self.first {
            // The tokens before the first known one are gone too.
            self.first = pos;
            self.start_trail();
        }
        Ok(())
    }

    /// Continues with another chain, to whose samplers the states of those before mean nothing: after a
    /// rollback, theirs follow from the tokens.
    pub fn replace_chain(&mut self, mut chain: Chain) {
        chain.forget();
        self.tokens.iter().for_each(|&token| chain.accept(token));
        self.chain = chain;
        self.trail.forget_samplers();
        self.generated.iter_mut().for_each(|generated| generated.samplers.clear());
        self.set();
    }

    /// Where the chain stands and stood.
    pub fn state(&self) -> State {
        State { trail: self.trail.clone(), ..self.chain.state() }
    }

    /// Goes on from `state`, or from nothing if there is none. What it lacks of the samplers follows from the
    /// tokens.
    ///
    /// # Errors
    /// As [`Chain::resume`]; [`Error::NoSamplerState`] only if the tokens are not known.
    pub fn resume(&mut self, state: Option<&State>) -> Result<(), Error> {
        let is_known = !self.tokens.is_empty() || self.first == Pos::ZERO;
        let Some(state) = state else {
            return if is_known { Ok(()) } else { self.chain.expect_no_state() };
        };
        if is_known {
            self.chain.resume_after(state, &self.tokens)?;
        } else {
            self.chain.resume(state)?;
        }
        self.trail = state.trail.clone();
        if self.trail.at(self.first).is_none() {
            self.trail = Trail::default();
            // Samplers stand as they do now at the end alone; before it, their states follow from the tokens.
            let (seed, rng, is_end) = (state.seed, state.rng, self.tokens.is_empty());
            self.trail.set(self.first, seed, rng, |bytes| {
                if is_end {
                    self.chain.save_samplers(bytes);
                }
            });
        }
        self.trail.cut(self.end());
        Ok(())
    }
}
