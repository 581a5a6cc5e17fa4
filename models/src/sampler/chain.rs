//! Chains: samplers in order, and the draw at the end.

use super::{
    Candidates, Dry, DynamicTemperature, Greedy, History, LogitBias, MinP, Penalties, Rng, Sampler,
    SamplerState, Settings, State, TopK, TopNSigma, TopP, Typical, Xtc,
};
use crate::error::Error;
use alloc::{boxed::Box, vec::Vec};
use backstitch_kv::Token;

/// Samplers in the order in which they were added, the tokens that they remember, and the random
/// numbers for the draw.
///
/// All buffers are allocated with the chain: sampling and accepting a token allocates nothing. A
/// clone is independent of the original.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Chain, Settings};
///
/// let mut chain = Chain::new(3, &Settings::default().seed(7));
/// let mut copy = chain.clone();
/// let logits = [1.0, 1.1, 0.9];
/// assert_eq!(chain.sample(&logits), copy.sample(&logits)); // same seed, same draw
/// ```
pub struct Chain {
    steps: Vec<Step>,
    candidates: Candidates,
    history: History,
    seed: u64,
    rng: Rng,
}

type Step = Box<dyn Sampler>;

/// The length of the header of a saved state: index and length, u32 each.
const SAMPLER_HEAD: usize = 8;

impl Chain {
    /// Make the usual chain: logit bias, penalties, DRY, top-nσ, top-k, typical, top-p, min-p, XTC,
    /// temperature. Samplers that `settings` turn off are left out. With a temperature of zero only
    /// the bias, the penalties, DRY and [`Greedy`] remain.
    pub fn new(n_vocab: usize, settings: &Settings) -> Self {
        Self::builder(n_vocab).settings(settings).build()
    }

    /// Start a chain of chosen samplers for `n_vocab` tokens.
    pub fn builder(n_vocab: usize) -> Builder {
        Builder { n_vocab, last_n: 0, seed: 0, steps: Vec::new() }
    }

    /// Draw the next token. `logits`: `[n_vocab]`.
    ///
    /// The result is `None` if every token is banned: its logit is minus infinity or not a number,
    /// in `logits` or after the samplers. Every call uses up one random number, whatever the
    /// candidates are.
    pub fn sample(&mut self, logits: &[f32]) -> Option<Token> {
        self.candidates.load(logits);
        self.candidates.set_chance(self.rng);
        for step in &mut self.steps {
            step.apply(&mut self.candidates, &self.history);
        }
        draw(&mut self.candidates, self.rng.unit())
    }

    /// Remember a token of the sequence, from the prompt or drawn.
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
        self.steps.iter_mut().for_each(|step| step.accept(token));
    }

    /// Clear the history and the samplers, and start the random numbers from the seed again.
    pub fn reset(&mut self) {
        self.reset_samplers();
        self.rng = Rng::new(self.seed);
    }

    /// Clear the history and the samplers. The random numbers continue.
    pub(crate) fn reset_samplers(&mut self) {
        self.history.reset();
        self.steps.iter_mut().for_each(|step| step.reset());
    }

    /// Return the generator of the random numbers at its current position.
    pub fn rng(&self) -> Rng {
        self.rng
    }

    /// Draw with the random numbers of `seed` from now on, from their beginning. The accepted
    /// tokens stay.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.rng = Rng::new(seed);
    }

    /// Return the seed that the random numbers started from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Return the state of the chain, from which another chain of the same samplers can continue.
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

    /// Continue from `state`.
    ///
    /// With the samplers of the chain that it was taken from, the next tokens are those that this
    /// one would have drawn. A chain with a shorter history keeps the newest tokens. Tokens outside
    /// of its vocabulary are ignored.
    ///
    /// # Errors
    /// [`Error::NoSamplerState`] if a sampler of this chain has a state and `state` has none for
    /// it; [`Chain::resume_after`] can rebuild it. [`Error::OtherSamplers`] if `state` has one for
    /// a sampler that this chain lacks, or that keeps none. Those of [`Sampler::restore`]. The
    /// chain has not changed then.
    pub fn resume(&mut self, state: &State) -> Result<(), Error> {
        self.steps = self.resumed(state, None)?;
        self.resume_draws(state, &state.tokens);
        Ok(())
    }

    /// Continue from `state`, as [`Chain::resume`], in a sequence that holds exactly `tokens`.
    ///
    /// Accepting these tokens rebuilds whatever `state` lacks for this chain: the states of
    /// samplers that were not saved, and tokens that the other chain did not remember.
    ///
    /// # Errors
    /// Those of [`Chain::resume`], except [`Error::NoSamplerState`].
    pub fn resume_after(&mut self, state: &State, tokens: &[Token]) -> Result<(), Error> {
        self.steps = self.resumed(state, Some(tokens))?;
        // If other tokens were accepted than the sequence holds, those count, as they did before.
        let accepted = if tokens.ends_with(&state.tokens) { tokens } else { &state.tokens };
        self.resume_draws(state, accepted);
        Ok(())
    }

    /// Set the random numbers to those of `state`, and the history to `accepted`.
    fn resume_draws(&mut self, state: &State, accepted: &[Token]) {
        self.reseed(state.seed);
        self.rng = Rng::new(state.rng);
        self.history.reset();
        accepted.iter().for_each(|&token| self.history.accept(token));
    }

    /// Return the samplers with their states in `state`. A sampler without one there accepts
    /// `tokens`.
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

    /// Check that no sampler has a state, for sequences whose tokens are unknown.
    pub(crate) fn expect_no_state(&self) -> Result<(), Error> {
        self.steps.iter().position(keeps_state).map_or(Ok(()), |index| Err(Error::NoSamplerState { index }))
    }

    /// Append the states of the samplers that have one: index, length and bytes of each.
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

    /// Return to an earlier state of the chain: random numbers at `rng` of `seed`, and `tokens`
    /// accepted.
    ///
    /// `saved` holds the bytes that [`Chain::save_samplers`] wrote when the first `saved.0` of
    /// `tokens` were accepted. Samplers start from these; those without bytes there start from
    /// nothing and accept all tokens.
    pub(crate) fn roll_back(
        &mut self,
        seed: u64,
        rng: u64,
        tokens: &[Token],
        saved: (usize, &[u8]),
    ) -> Result<(), Error> {
        self.reset_samplers();
        self.reseed(seed);
        self.rng = Rng::new(rng);
        tokens.iter().for_each(|&token| self.history.accept(token));
        debug_assert!(saved.0 <= tokens.len(), "states of a later position");
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

    /// Draw with the random numbers of `seed` from `rng` on.
    pub(crate) fn draw_from(&mut self, seed: u64, rng: Rng) {
        (self.seed, self.rng) = (seed, rng);
    }

    /// Return the candidates of the last call of [`Chain::sample`], after all samplers.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }
}

/// Return true if a sampler that accepted nothing saves a state even so.
fn keeps_state(step: &Step) -> bool {
    let mut bytes = Vec::new();
    step.save(&mut bytes);
    !bytes.is_empty()
}

/// Give the sampler at `index`, which accepted nothing, the state in `bytes`.
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

/// Return the candidate at the fraction `unit` of the distribution. `unit`: `0.0..1.0`.
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

/// A builder of [`Chain`]s.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Chain, MinP, Temperature, TopK};
///
/// let builder = Chain::builder(3).with(TopK(2)).with(MinP(0.1)).with(Temperature(0.7)).seed(7);
/// let mut chain = builder.build();
/// assert_ne!(chain.sample(&[1.0, 0.0, 2.0]).unwrap().0, 1); // top-k dropped it
/// ```
pub struct Builder {
    n_vocab: usize,
    last_n: usize,
    seed: u64,
    steps: Vec<Step>,
}

impl Builder {
    /// Add a sampler after those already there.
    pub fn with(mut self, sampler: impl Sampler + 'static) -> Self {
        self.steps.push(Box::new(sampler));
        self
    }

    /// Remember the last `n` tokens for the samplers; none without this call.
    pub fn last_n(mut self, n: usize) -> Self {
        self.last_n = n;
        self
    }

    /// Set the seed of the random numbers; 0 without this call.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Add the samplers of `settings`, as [`Chain::new`] has them, and take their seed. The history
    /// is at least as long as the penalties need.
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
        if !s.dry.are_off() {
            self = self.with(Dry::new(&s.dry, &s.dry_breakers));
        }
        if s.temp > 0.0 { self.with_cuts(s).with_temperature(s) } else { self.with(Greedy) }
    }

    /// Add the samplers that drop candidates.
    fn with_cuts(mut self, s: &Settings) -> Self {
        if s.top_n_sigma > 0.0 {
            self = self.with(TopNSigma(s.top_n_sigma));
        }
        self = self.with(TopK(s.top_k)).with(Typical(s.typical_p)).with(TopP(s.top_p)).with(MinP(s.min_p));
        let xtc = Xtc { probability: s.xtc_probability, threshold: s.xtc_threshold };
        if xtc.is_off() { self } else { self.with(xtc) }
    }

    fn with_temperature(self, s: &Settings) -> Self {
        let (range, exponent) = (s.dynamic_temp_range, s.dynamic_temp_exponent);
        self.with(DynamicTemperature { temp: s.temp, range, exponent })
    }

    /// Make the chain, with all its buffers.
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
