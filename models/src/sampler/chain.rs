//! Chains: samplers in order, and the draw at the end.

mod builder;

use super::mt19937::Mt19937;
use super::{Candidates, History, Rng, Sampler, SamplerState, Settings, State};
use crate::error::Error;
use alloc::{boxed::Box, string::String, vec::Vec};
use backstitch_kv::Token;
pub use builder::Builder;

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
    /// The position among the random numbers; itself the generator, if that is Backstitch's.
    rng: Rng,
    /// The random numbers of [`Generator::Llama`].
    llama: Option<Box<Mt19937>>,
}

type Step = Box<dyn Sampler>;

/// The length of the header of a saved state: index and length, u32 each.
const SAMPLER_HEAD: usize = 8;

impl Chain {
    /// Make the usual chain: logit bias, then penalties, DRY, top-nσ, top-k, typical, top-p, min-p,
    /// XTC, temperature, or those of [`Settings::order`]. Samplers that `settings` turn off are
    /// left out. With a temperature of zero only the bias, the penalties, DRY and
    /// [`Greedy`](super::Greedy) remain, and with mirostat the bias, the temperature and mirostat.
    pub fn new(n_vocab: usize, settings: &Settings) -> Self {
        Self::builder(n_vocab).settings(settings).build()
    }

    /// Start a chain of chosen samplers for `n_vocab` tokens.
    pub fn builder(n_vocab: usize) -> Builder {
        Builder::new(n_vocab)
    }

    /// Draw the next token. `logits`: `[n_vocab]`.
    ///
    /// The result is `None` if every token is banned: its logit is minus infinity or not a number,
    /// in `logits` or after the samplers. Every call uses up one random number, whatever the
    /// candidates are.
    pub fn sample(&mut self, logits: &[f32]) -> Option<Token> {
        match self.n_needed() {
            Some(k) => self.candidates.load_best(logits, k),
            None => self.candidates.load(logits),
        }
        self.draw()
    }

    /// Draw one of `candidates`, each a token and its logit, as [`Chain::sample`] draws one of a
    /// row of logits. They stay in their order, which decides about draws.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Token;
    /// use backstitch_models::sampler::{Chain, Greedy};
    ///
    /// let mut chain = Chain::builder(10).with(Greedy).build();
    /// let candidates = [(Token(7), 0.5), (Token(3), 1.5)];
    /// assert_eq!(chain.sample_from(candidates), Some(Token(3)));
    /// ```
    pub fn sample_from(&mut self, candidates: impl IntoIterator<Item = (Token, f32)>) -> Option<Token> {
        self.candidates.load_listed(candidates);
        self.draw()
    }

    /// Apply the samplers to `candidates` without drawing, and return those that are left. No
    /// random number of the draw is used up.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Token;
    /// use backstitch_models::sampler::{Chain, TopK};
    ///
    /// let mut chain = Chain::builder(10).with(TopK(1)).build();
    /// let left = chain.filter([(Token(7), 0.5), (Token(3), 1.5)]);
    /// assert_eq!(left.items().iter().map(|c| c.id.0).collect::<Vec<_>>(), [3]);
    /// ```
    pub fn filter(&mut self, candidates: impl IntoIterator<Item = (Token, f32)>) -> &Candidates {
        self.candidates.load_listed(candidates);
        self.apply();
        &self.candidates
    }

    fn apply(&mut self) {
        self.candidates.set_chance(self.rng);
        for step in &mut self.steps {
            step.apply(&mut self.candidates, &self.history);
        }
    }

    fn draw(&mut self) -> Option<Token> {
        self.apply();
        let unit = self.unit();
        let token = self.candidates.draw(unit)?;
        self.steps.iter_mut().for_each(|step| step.drawn(token, &self.candidates));
        Some(token)
    }

    /// Return the number of best candidates that decide the draw; none if all count.
    fn n_needed(&self) -> Option<usize> {
        let mut n_lowered = 0usize;
        for step in &self.steps {
            if let Some(k) = step.n_best() {
                return Some(k.saturating_add(n_lowered));
            }
            n_lowered = n_lowered.saturating_add(step.n_lowered()?);
        }
        None
    }

    /// Return the next random number.
    fn unit(&mut self) -> f64 {
        let n_drawn = self.rng.n_drawn(self.seed);
        let unit = self.rng.unit();
        self.llama.as_mut().map_or(unit, |numbers| numbers.double(2 * (n_drawn % (1 << 32))))
    }

    /// Remember a token of the sequence, from the prompt or drawn.
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
        self.steps.iter_mut().for_each(|step| step.accept(token));
    }

    /// Do the work of the next [`Chain::sample`] that needs no logits, such as the mask of a
    /// [grammar](crate::grammar). The draw is the same without this call, which may come from
    /// another thread while the model runs. Tokens accepted afterwards, and going back, make the
    /// work void.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::sampler::{Chain, Settings};
    ///
    /// let mut chain = Chain::new(2, &Settings::default().temp(0.0));
    /// let logits = std::thread::scope(|scope| {
    ///     if !chain.is_prepared() {
    ///         scope.spawn(|| chain.prepare());
    ///     }
    ///     [0.5, 1.5] // of the model, which runs meanwhile
    /// });
    /// assert!(chain.is_prepared());
    /// assert_eq!(chain.sample(&logits).map(|token| token.0), Some(1));
    /// ```
    pub fn prepare(&mut self) {
        self.steps.iter_mut().for_each(|step| step.prepare());
    }

    /// Return true if [`Chain::prepare`] has nothing to do.
    pub fn is_prepared(&self) -> bool {
        self.steps.iter().all(|step| step.is_prepared())
    }

    /// Return the reason for which the last draw had no token, if a sampler knows one: that of a
    /// grammar which became too complex, for example.
    pub fn failure(&self) -> Option<String> {
        self.steps.iter().find_map(|step| step.failure())
    }

    /// Clear the history and the samplers, and start the random numbers from the seed again.
    pub fn reset(&mut self) {
        self.reset_samplers();
        self.reseed(self.seed);
    }

    /// Clear the history and the samplers. The random numbers continue.
    pub(crate) fn reset_samplers(&mut self) {
        self.history.reset();
        self.steps.iter_mut().for_each(|step| step.reset());
    }

    /// Return the generator of the random numbers at its current position. With
    /// [`Generator::Llama`](super::Generator) it is this position alone.
    pub fn rng(&self) -> Rng {
        self.rng
    }

    /// Draw with the random numbers of `seed` from now on, from their beginning. The accepted
    /// tokens stay.
    pub fn reseed(&mut self, seed: u64) {
        self.draw_from(seed, Rng::new(seed));
    }

    /// Draw with the random numbers of `other` from now on, from its position on. A chain that
    /// takes the place of another one does not repeat its draws then.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::sampler::{Chain, Settings};
    ///
    /// let mut before = Chain::new(4, &Settings::default().seed(3));
    /// before.sample(&[0.0; 4]);
    /// let mut after = Chain::new(4, &Settings::default().temp(1.0));
    /// after.continue_draws(&before);
    /// assert_eq!((after.seed(), after.rng()), (before.seed(), before.rng()));
    /// ```
    pub fn continue_draws(&mut self, other: &Chain) {
        self.draw_from(other.seed, other.rng);
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
        let steps = self.resumed(state, None)?;
        self.resume_draws(state, &state.tokens, steps);
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
        let steps = self.resumed(state, Some(tokens))?;
        // If other tokens were accepted than the sequence holds, those count, as they did before.
        let accepted = if tokens.ends_with(&state.tokens) { tokens } else { &state.tokens };
        self.resume_draws(state, accepted, steps);
        Ok(())
    }

    /// Take over `steps`, the random numbers of `state` and a history of `accepted` tokens.
    fn resume_draws(&mut self, state: &State, accepted: &[Token], steps: Vec<Step>) {
        self.set_numbers(state.seed, Rng::new(state.rng));
        self.steps = steps;
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
            step.draw_from(state.seed, Rng::new(state.rng).n_drawn(state.seed));
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
        self.save_some(bytes, |_| true);
    }

    /// Append the states of the samplers, as [`Chain::save_samplers`], that do not follow from the
    /// tokens of the sequence.
    pub(crate) fn save_drawn(&self, bytes: &mut Vec<u8>) {
        self.save_some(bytes, |step| !step.follows_from_tokens());
    }

    fn save_some(&self, bytes: &mut Vec<u8>, is_saved: impl Fn(&Step) -> bool) {
        for (index, step) in (0u32..).zip(&self.steps).filter(|(_, step)| is_saved(step)) {
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
    /// Each of `saved` holds bytes that [`Chain::save_samplers`] wrote, and how many of `tokens`
    /// were accepted then. A sampler starts from the first of these that has bytes for it, or else
    /// from nothing, and accepts the tokens after that.
    pub(crate) fn roll_back(
        &mut self,
        seed: u64,
        rng: u64,
        tokens: &[Token],
        saved: [(usize, &[u8]); 2],
    ) -> Result<(), Error> {
        self.reset_samplers();
        self.draw_from(seed, Rng::new(rng));
        tokens.iter().for_each(|&token| self.history.accept(token));
        let mut states = Vec::new();
        for (n_accepted, bytes) in saved {
            debug_assert!(n_accepted <= tokens.len(), "states of a later position");
            states.extend(super::state::decode_samplers(bytes)?.into_iter().map(|state| (n_accepted, state)));
        }
        let beyond = |(_, state): &&(usize, SamplerState)| state.index as usize >= self.steps.len();
        if let Some((_, state)) = states.iter().find(beyond) {
            return Err(Error::OtherSamplers { index: state.index as usize });
        }
        for (i, step) in self.steps.iter_mut().enumerate() {
            let own = states.iter().find(|(_, state)| state.index as usize == i);
            if let Some((_, own)) = own {
                restore(step, i, &own.bytes)?;
            }
            let n_accepted = own.map_or(0, |(n_accepted, _)| *n_accepted);
            let left = tokens.get(n_accepted..).unwrap_or_default();
            left.iter().for_each(|&token| step.accept(token));
        }
        Ok(())
    }

    /// Draw with the random numbers of `seed` from `rng` on.
    pub(crate) fn draw_from(&mut self, seed: u64, rng: Rng) {
        self.set_numbers(seed, rng);
        let n_drawn = rng.n_drawn(seed);
        self.steps.iter_mut().for_each(|step| step.draw_from(seed, n_drawn));
    }

    fn set_numbers(&mut self, seed: u64, rng: Rng) {
        (self.seed, self.rng) = (seed, rng);
        // llama.cpp's seeds have 32 bits.
        self.llama.iter_mut().for_each(|numbers| numbers.start(seed as u32));
    }

    /// Return the candidates of the last call of [`Chain::sample`], after all samplers.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// Return the tokens among which the last call of [`Chain::sample`] drew, with the probability
    /// that each had after all samplers.
    ///
    /// ```
    /// use backstitch_models::sampler::{Chain, Settings};
    ///
    /// let mut chain = Chain::new(3, &Settings::default().top_k(2).top_p(1.0).temp(1.0));
    /// chain.sample(&[1.0, 1.0, 0.0]);
    /// let probabilities: Vec<_> = chain.probabilities().map(|(token, p)| (token.0, p)).collect();
    /// assert_eq!(probabilities, [(0, 0.5), (1, 0.5)]);
    /// ```
    pub fn probabilities(&self) -> impl Iterator<Item = (Token, f32)> + '_ {
        self.candidates.probabilities()
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
            llama: self.llama.clone(),
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

#[cfg(test)]
mod tests;
