//! Samplers in a row, and the draw at the end.

use super::{
    Candidates, Greedy, History, LogitBias, MinP, Penalties, Rng, Sampler, Settings, State, Temperature,
    TopK, TopP, Typical,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Samplers in the order they were added, what they remember, and the random numbers for the draw.
///
/// All buffers are made with the chain: sampling and accepting a token allocates nothing. A clone shares the samplers
/// and copies what they remember.
pub struct Chain {
    steps: Arc<[Step]>,
    candidates: Candidates,
    history: History,
    seed: u64,
    rng: Rng,
}

type Step = Arc<dyn Sampler + Send + Sync>;

impl Chain {
    /// The usual chain: logit bias, penalties, top-k, typical, top-p, min-p, temperature. What `settings` turn off is
    /// left out; with a temperature of zero only bias, penalties and the best token remain.
    pub fn new(n_vocab: usize, settings: &Settings) -> Self {
        let s = settings;
        let penalties = Penalties {
            repeat: s.repeat_penalty,
            frequency: s.frequency_penalty,
            presence: s.presence_penalty,
        };
        let penalties = Some(penalties).filter(|p| s.repeat_last_n > 0 && !p.are_off());
        let mut chain = Self::builder(n_vocab).seed(s.seed);
        if !s.logit_bias.is_empty() {
            chain = chain.with(LogitBias(s.logit_bias.clone()));
        }
        if let Some(penalties) = penalties {
            chain = chain.last_n(s.repeat_last_n).with(penalties);
        }
        if s.temp > 0.0 {
            chain =
                chain.with(TopK(s.top_k)).with(Typical(s.typical_p)).with(TopP(s.top_p)).with(MinP(s.min_p));
            chain.with(Temperature(s.temp)).build()
        } else {
            chain.with(Greedy).build()
        }
    }

    /// A chain of your own, for `n_vocab` tokens.
    pub fn builder(n_vocab: usize) -> Builder {
        Builder { n_vocab, last_n: 0, seed: 0, steps: Vec::new() }
    }

    /// Draws the next token. `logits`: `[n_vocab]`; `None` if that is empty. Uses up one random number, whatever is
    /// left to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Option<Token> {
        self.candidates.load(logits);
        for step in self.steps.iter() {
            step.apply(&mut self.candidates, &self.history);
        }
        draw(&mut self.candidates, self.rng.unit())
    }

    /// Remembers a token of the sequence, from the prompt or drawn.
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
    }

    /// Forgets all tokens and starts the random numbers again.
    pub fn reset(&mut self) {
        self.history.reset();
        self.rng = Rng::new(self.seed);
    }

    /// Forgets all tokens; the random numbers go on.
    pub fn forget(&mut self) {
        self.history.reset();
    }

    /// What it remembers, to go on from in another chain of the same samplers.
    pub fn state(&self) -> State {
        State { seed: self.seed, rng: self.rng.state(), tokens: self.history.tokens().collect() }
    }

    /// Goes on from `state`: with the samplers of the chain that it was taken from, the next tokens are those that this one would have
    /// drawn. A chain that remembers fewer tokens keeps the newest; those that it does not know are ignored.
    pub fn resume(&mut self, state: &State) {
        self.seed = state.seed;
        self.rng = Rng::new(state.rng);
        self.history.reset();
        state.tokens.iter().for_each(|&token| self.history.accept(token));
    }

    /// What the last call of [`Chain::sample`] chose from, after all samplers.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }
}

impl Clone for Chain {
    fn clone(&self) -> Self {
        Self {
            steps: Arc::clone(&self.steps),
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
    pub fn with(mut self, sampler: impl Sampler + Send + Sync + 'static) -> Self {
        self.steps.push(Arc::new(sampler));
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

    /// The chain, with all its buffers.
    pub fn build(self) -> Chain {
        Chain {
            steps: self.steps.into(),
            candidates: Candidates::new(self.n_vocab),
            history: History::new(self.n_vocab, self.last_n),
            seed: self.seed,
            rng: Rng::new(self.seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::logits_of;
    use super::*;
    use proptest::prelude::*;

    fn story(chain: &mut Chain, logits: &[f32], n: usize) -> Vec<u32> {
        let mut next = || {
            let token = chain.sample(logits)?;
            chain.accept(token);
            Some(token.0)
        };
        (0..n).filter_map(|_| next()).collect()
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let probabilities = [0.5, 0.3, 0.15, 0.05];
        let mut chain = Chain::builder(4).seed(42).build();
        let tokens = story(&mut chain, &logits_of(&probabilities), 20_000);
        for (token, p) in (0..).zip(probabilities) {
            let share = tokens.iter().filter(|&&t| t == token).count() as f32 / 20_000.0;
            assert!((share - p).abs() < 0.01, "token {token}: {share} instead of {p}");
        }
    }

    #[test]
    fn the_seed_tells_the_story() {
        let logits = [0.0; 50];
        let settings = |seed| Settings { seed, ..Settings::default() };
        let a = story(&mut Chain::new(50, &settings(1)), &logits, 40);
        let b = story(&mut Chain::new(50, &settings(1)), &logits, 40);
        let c = story(&mut Chain::new(50, &settings(2)), &logits, 40);
        assert_eq!(a, b);
        assert_ne!(a, c);
    }

    #[test]
    fn the_drawn_tokens_are_pinned() {
        // A change of any bit on the way from seed to token changes saved conversations: it has to be noticed.
        let logits: Vec<f32> = (0..32).map(|i| ((i * 37) % 17) as f32 * 0.25).collect();
        let mut chain = Chain::new(32, &Settings { seed: 7, repeat_penalty: 1.1, ..Settings::default() });
        assert_eq!(story(&mut chain, &logits, 12), [5, 11, 3, 10, 16, 22, 22, 5, 28, 22, 11, 25]);
    }

    #[test]
    fn a_clone_goes_the_same_way_and_a_reset_starts_again() {
        let logits = [0.0, 0.5, 1.0, 0.25];
        let mut chain = Chain::new(4, &Settings { frequency_penalty: 0.5, ..Settings::default() });
        let start = story(&mut chain, &logits, 10);
        let mut twin = chain.clone();
        assert_eq!(story(&mut chain, &logits, 10), story(&mut twin, &logits, 10));
        chain.reset();
        assert_eq!(story(&mut chain, &logits, 10), start);
    }

    #[test]
    fn temperature_zero_takes_the_best_whatever_the_seed() {
        for seed in 0..20 {
            let mut chain = Chain::new(3, &Settings { temp: 0.0, seed, ..Settings::default() });
            assert_eq!(chain.sample(&[1.0, 1.5, 1.5]), Some(Token(1)));
        }
    }

    #[test]
    fn penalties_break_a_loop() {
        let mut chain = Chain::new(
            2,
            &Settings { temp: 0.0, presence_penalty: 1.0, repeat_last_n: 1, ..Settings::default() },
        );
        assert_eq!(story(&mut chain, &[1.0, 0.5], 4), [0, 1, 0, 1]);
    }

    #[test]
    fn a_ban_holds_even_at_high_temperature() {
        let logit_bias = alloc::vec![(Token(0), f32::NEG_INFINITY)];
        let mut chain = Chain::new(3, &Settings { temp: 100.0, logit_bias, ..Settings::default() });
        assert!(!story(&mut chain, &[9.0, 0.0, 0.0], 200).contains(&0));
    }

    #[test]
    fn no_logits_no_token() {
        assert_eq!(Chain::new(0, &Settings::default()).sample(&[]), None);
    }

    fn any_logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => -30.0f32..30.0,
            1 => prop::num::f32::ANY,
            1 => prop::sample::select(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0][..]),
        ]
    }

    proptest! {
        #[test]
        fn any_logits_under_any_settings_give_a_token(
            logits in prop::collection::vec(any_logit(), 1..200),
            temp in any_logit(), top_k in 0usize..100, top_p in any_logit(), min_p in any_logit(),
            typical_p in any_logit(), repeat_penalty in any_logit(), frequency_penalty in any_logit(),
            bias in any_logit(), seed: u64,
        ) {
            let logit_bias = alloc::vec![(Token(0), bias), (Token(3), -bias)];
            let settings = Settings {
                seed, temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty, logit_bias,
                ..Settings::default()
            };
            let mut chain = Chain::new(logits.len(), &settings);
            for token in story(&mut chain, &logits, 5) {
                prop_assert!((token as usize) < logits.len());
            }
            prop_assert!(chain.sample(&logits).is_some());
        }

        #[test]
        fn probabilities_sum_to_one(logits in prop::collection::vec(-30.0f32..30.0, 1..300), top_k in 0usize..50) {
            let mut chain = Chain::new(logits.len(), &Settings { top_k, ..Settings::default() });
            chain.sample(&logits);
            let mut left = chain.candidates().clone();
            let total = left.softmax();
            let sum: f64 = left.items().iter().map(|c| f64::from(c.score) / total).sum();
            prop_assert!((sum - 1.0).abs() < 1e-12);
        }
    }
}
