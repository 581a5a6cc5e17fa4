//! Samplers in a row, and the draw at the end.

use super::{
    Candidates, Greedy, History, LogitBias, MinP, Penalties, Rng, Sampler, SamplerState, Settings, State,
    Temperature, TopK, TopP, Typical,
};
use crate::error::Error;
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::Token;

/// Samplers in the order they were added, what they remember, and the random numbers for the draw.
///
/// All buffers are made with the chain: sampling and accepting a token allocates nothing. A clone is
/// independent.
pub struct Chain {
    steps: Vec<Step>,
    candidates: Candidates,
    history: History,
    seed: u64,
    rng: Rng,
}

type Step = Box<dyn Sampler>;

/// Place and length of a saved state, u32 each.
const SAMPLER_HEAD: usize = 8;

impl Chain {
    /// The usual chain: logit bias, penalties, top-k, typical, top-p, min-p, temperature. What `settings`
    /// turn off is left out; with a temperature of zero only bias, penalties and the best token remain.
    pub fn new(n_vocab: usize, settings: &Settings) -> Self {
        Self::builder(n_vocab).settings(settings).build()
    }

    /// A chain of your own, for `n_vocab` tokens.
    pub fn builder(n_vocab: usize) -> Builder {
        Builder { n_vocab, last_n: 0, seed: 0, steps: Vec::new() }
    }

    /// Draws the next token. `logits`: `[n_vocab]`. `None` if every token is banned: its logit is minus
    /// infinity or not a number, in `logits` or after the samplers. Uses up one random number, whatever is
    /// left to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Option<Token> {
        self.candidates.load(logits);
        for step in &mut self.steps {
            step.apply(&mut self.candidates, &self.history);
        }
        draw(&mut self.candidates, self.rng.unit())
    }

    /// Remembers a token of the sequence, from the prompt or drawn.
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
        self.steps.iter_mut().for_each(|step| step.accept(token));
    }

    /// Forgets all tokens and starts the random numbers again.
    pub fn reset(&mut self) {
        self.forget();
        self.rng = Rng::new(self.seed);
    }

    /// Forgets all tokens; the random numbers go on.
    pub fn forget(&mut self) {
        self.history.reset();
        self.steps.iter_mut().for_each(|step| step.reset());
    }

    /// Return the random numbers, as they go on from here.
    pub fn rng(&self) -> Rng {
        self.rng
    }

    /// Draw with the random numbers of `seed` from now on, from their beginning; what was accepted stays.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.rng = Rng::new(seed);
    }

    /// Return the seed that the random numbers started from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What it remembers, to go on from in another chain of the same samplers.
    pub fn state(&self) -> State {
        let samplers = (0..).zip(&self.steps).map(|(index, step)| {
            let mut bytes = Vec::new();
            step.save(&mut bytes);
            SamplerState { index, bytes }
        });
        State {
            seed: self.seed,
            rng: self.rng.state(),
            tokens: self.history.tokens().collect(),
            samplers: samplers.filter(|sampler| !sampler.bytes.is_empty()).collect(),
            trail: super::Trail::default(),
        }
    }

    /// Go on from `state`: with the samplers of the chain that it was taken from, the next tokens are
    /// those that this one would have drawn. A chain that remembers fewer tokens keeps the newest; those
    /// that it does not know are ignored.
    ///
    /// # Errors
    /// [`Error::NoSamplerState`] if a sampler of this chain has a state and `state` has none for it, where
    /// [`Chain::resume_after`] may do; [`Error::OtherSamplers`] if `state` has one for a sampler that this
    /// chain lacks, or that keeps none; what [`Sampler::restore`] says. The chain is as it was then.
    pub fn resume(&mut self, state: &State) -> Result<(), Error> {
        self.steps = self.resumed(state, None)?;
        self.resume_draws(state, &state.tokens);
        Ok(())
    }

    /// Go on from `state` as [`Chain::resume`] in a sequence that holds `tokens` and nothing before them. What
    /// `state` lacks of this chain follows from accepting them: the states of samplers that were not saved, and
    /// tokens that the chain before did not remember.
    ///
    /// # Errors
    /// As [`Chain::resume`], but for [`Error::NoSamplerState`].
    pub fn resume_after(&mut self, state: &State, tokens: &[Token]) -> Result<(), Error> {
        self.steps = self.resumed(state, Some(tokens))?;
        // Other tokens were accepted than those held: they count, as they did before.
        let accepted = if tokens.ends_with(&state.tokens) { tokens } else { &state.tokens };
        self.resume_draws(state, accepted);
        Ok(())
    }

    /// Random numbers as in `state`, and `accepted` remembered.
    fn resume_draws(&mut self, state: &State, accepted: &[Token]) {
        self.reseed(state.seed);
        self.rng = Rng::new(state.rng);
        self.history.reset();
        accepted.iter().for_each(|&token| self.history.accept(token));
    }

    /// The samplers with their states in `state`; where it has none, with that which follows from `tokens`.
    fn resumed(&self, state: &State, tokens: Option<&[Token]>) -> Result<Vec<Step>, Error> {
        let index = |saved: &SamplerState| saved.index as usize;
        if let Some(beyond) = state.samplers.iter().map(index).find(|&index| index >= self.steps.len()) {
            return Err(Error::OtherSamplers { index: beyond });
        }
        let mut steps = self.steps.clone();
        for (i, step) in steps.iter_mut().enumerate() {
            step.reset();
            match (state.samplers.iter().find(|saved| index(saved) == i), tokens) {
                (Some(saved), _) => restore(step, i, &saved.bytes)?,
                (None, Some(tokens)) => tokens.iter().for_each(|&token| step.accept(token)),
                (None, None) if keeps_state(step) => return Err(Error::NoSamplerState { index: i }),
                (None, None) => {}
            }
        }
        Ok(steps)
    }

    /// Checks that no sampler has a state, as where nothing tells which it should be.
    pub(crate) fn expect_no_state(&self) -> Result<(), Error> {
        self.steps.iter().position(keeps_state).map_or(Ok(()), |index| Err(Error::NoSamplerState { index }))
    }

    /// Appends the states of those samplers that have one: their place, their length, their bytes.
    pub(crate) fn save_samplers(&self, bytes: &mut Vec<u8>) {
        for (index, step) in (0u32..).zip(&self.steps) {
            let start = bytes.len();
            bytes.extend(index.to_le_bytes());
            bytes.extend([0; 4]);
            step.save(bytes);
            let n = bytes.len() - start - SAMPLER_HEAD;
            match bytes.get_mut(start + 4..start + SAMPLER_HEAD) {
                Some(len) if n > 0 => len.copy_from_slice(&(n as u32).to_le_bytes()),
                _ => bytes.truncate(start),
            }
        }
    }

    /// Stands where it stood once: random numbers at `rng` of `seed`, `tokens` accepted. The samplers start
    /// from what [`Chain::save_samplers`] made of them when the first `saved.0` of `tokens` were accepted;
    /// those that it has nothing of, from nothing.
    pub(crate) fn rewind(
        &mut self,
        seed: u64,
        rng: u64,
        tokens: &[Token],
        saved: (usize, &[u8]),
    ) -> Result<(), Error> {
        self.forget();
        self.reseed(seed);
        self.rng = Rng::new(rng);
        tokens.iter().for_each(|&token| self.history.accept(token));
        let rest = tokens.get(saved.0..).unwrap_or_default();
        let mut states = super::state::decode_samplers(saved.1)?.into_iter().peekable();
        for (i, step) in self.steps.iter_mut().enumerate() {
            let own = states.next_if(|state| state.index as usize == i);
            if let Some(own) = &own {
                restore(step, i, &own.bytes)?;
            }
            let left = if own.is_some() { rest } else { tokens };
            left.iter().for_each(|&token| step.accept(token));
        }
        states.next().map_or(Ok(()), |state| Err(Error::OtherSamplers { index: state.index as usize }))
    }

    /// Draws with the random numbers of `seed` from `rng` on.
    pub(crate) fn draw_from(&mut self, seed: u64, rng: Rng) {
        (self.seed, self.rng) = (seed, rng);
    }

    /// What the last call of [`Chain::sample`] chose from, after all samplers.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }
}

/// Return true if a sampler that accepted nothing has a state all the same.
fn keeps_state(step: &Step) -> bool {
    let mut bytes = Vec::new();
    step.save(&mut bytes);
    !bytes.is_empty()
}

/// Gives the sampler at `index`, which accepted nothing, the state in `bytes`.
fn restore(step: &mut Step, index: usize, bytes: &[u8]) -> Result<(), Error> {
    step.restore(bytes).map_err(|error| match keeps_state(step) {
        true => error,
        false => Error::OtherSamplers { index },
    })
}

impl Clone for Box<dyn Sampler> {
    fn clone(&self) -> Self {
        (**self).clone_boxed()
    }
}

impl Clone for Chain {
    fn clone(&self) -> Self {
        Self {
            steps: self.steps.clone(),
            candidates: self.candidates.clone(),
            history: self.history.clone(),
            seed: self.seed,
            rng: self.rng,
        }
    }
}

impl core::fmt::Debug for Chain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Chain")
            .field("steps", &self.steps.len())
            .field("rng", &self.rng)
            .finish_non_exhaustive()
    }
}

/// Takes the candidate at the share `unit` of the distribution. `unit`: `0.0..1.0`.
fn draw(candidates: &mut Candidates, unit: f64) -> Option<Token> {
    let goal = unit * candidates.softmax();
    let mut sum = 0.0;
    let mut last = None;
    for c in candidates.items().iter().filter(|c| c.score > 0.0) {
        last = Some(c.id);
        sum += f64::from(c.score);
        if sum > goal {
            break;
        }
    }
    last
}

/// Makes a [`Chain`] step by step.
pub struct Builder {
    n_vocab: usize,
    last_n: usize,
    seed: u64,
    steps: Vec<Step>,
}

impl Builder {
    /// Adds a sampler after those already there.
    pub fn with(mut self, sampler: impl Sampler + 'static) -> Self {
        self.steps.push(Box::new(sampler));
        self
    }

    /// Remembers the last `n` tokens for the samplers; none without this call.
    pub fn last_n(mut self, n: usize) -> Self {
        self.last_n = n;
        self
    }

    /// Where the random numbers start; 0 without this call.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds the samplers of `settings`, as [`Chain::new`] has them, and takes their seed. The penalties' tokens
    /// are remembered, or more if more were asked for.
    pub fn settings(mut self, settings: &Settings) -> Self {
        let s = settings;
        self.seed = s.seed;
        let penalties = Penalties {
            repeat: s.repeat_penalty,
            frequency: s.frequency_penalty,
            presence: s.presence_penalty,
        };
        if !s.logit_bias.is_empty() {
            self = self.with(LogitBias(s.logit_bias.clone()));
        }
        if s.repeat_last_n > 0 && !penalties.are_off() {
            self.last_n = self.last_n.max(s.repeat_last_n);
            self = self.with(penalties);
        }
        if s.temp > 0.0 {
            let cut =
                self.with(TopK(s.top_k)).with(Typical(s.typical_p)).with(TopP(s.top_p)).with(MinP(s.min_p));
            cut.with(Temperature(s.temp))
        } else {
            self.with(Greedy)
        }
    }

    /// The chain, with all its buffers.
    pub fn build(self) -> Chain {
        Chain {
            steps: self.steps,
            candidates: Candidates::new(self.n_vocab),
            history: History::new(self.n_vocab, self.last_n),
            seed: self.seed,
            rng: Rng::new(self.seed),
        }
    }
}

#[cfg(test)]
mod tests;
