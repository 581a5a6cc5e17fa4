//! Building chains: of chosen samplers, or of settings.

use super::{Chain, Step};
use crate::sampler::mt19937::Mt19937;
use crate::sampler::xtc::LlamaXtc;
use crate::sampler::{
    AdaptiveP, Candidates, Dry, DynamicTemperature, Generator, Greedy, History, Kind, LogitBias, MinP,
    Mirostat, Penalties, Rng, Sampler, Settings, Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use alloc::{boxed::Box, vec::Vec};

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
    generator: Generator,
    min_keep: usize,
    steps: Vec<Step>,
}

impl Builder {
    pub(super) fn new(n_vocab: usize) -> Self {
        Builder {
            n_vocab,
            last_n: 0,
            seed: 0,
            generator: Generator::default(),
            min_keep: 0,
            steps: Vec::new(),
        }
    }

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

    /// Draw with the random numbers of `generator`; Backstitch's own without this call.
    pub fn generator(mut self, generator: Generator) -> Self {
        self.generator = generator;
        self
    }

    /// Add the samplers of `settings`, as [`Chain::new`] has them, and take their seed, their
    /// generator and [`Settings::min_keep`]. The history is at least as long as the penalties need.
    pub fn settings(mut self, settings: &Settings) -> Self {
        let s = settings;
        (self.seed, self.generator, self.min_keep) = (s.seed, s.generator, s.min_keep);
        if !s.logit_bias.is_empty() {
            self = self.with(LogitBias(s.logit_bias.clone()));
        }
        if let Some(version) = s.mirostat {
            let mirostat = Mirostat::new(version, s.mirostat_tau, s.mirostat_eta, self.n_vocab, s.generator);
            return self.with(Temperature(s.temp)).with(mirostat);
        }
        // llama.cpp runs all samplers at a temperature of zero too.
        let is_greedy = s.generator == Generator::Backstitch
            && (s.temp <= 0.0 || s.temp.is_nan())
            && s.order.contains(&Kind::Temperature);
        for &kind in &s.order {
            if !is_greedy || matches!(kind, Kind::Penalties | Kind::Dry) {
                self = self.with_kind(kind, s);
            }
        }
        if is_greedy {
            return self.with(Greedy);
        }
        if s.order.contains(&Kind::AdaptiveP) {
            let n_vocab = self.n_vocab;
            self = self.with(AdaptiveP::new(s.adaptive_target, s.adaptive_decay, n_vocab, s.generator));
        }
        self
    }

    /// Add one sampler of `settings`, if it is on.
    fn with_kind(self, kind: Kind, settings: &Settings) -> Self {
        let s = settings;
        match kind {
            Kind::Penalties => self.with_penalties(s),
            Kind::Dry if !s.dry.are_off() => self.with(Dry::new(&s.dry, &s.dry_breakers)),
            Kind::TopNSigma if s.top_n_sigma > 0.0 => self.with(TopNSigma(s.top_n_sigma)),
            Kind::TopK => self.with(TopK(s.top_k)),
            Kind::Typical => self.with(Typical(s.typical_p)),
            Kind::TopP => self.with(TopP(s.top_p)),
            Kind::MinP => self.with(MinP(s.min_p)),
            Kind::Xtc => self.with_xtc(s),
            Kind::Temperature => {
                let (range, exponent) = (s.dynamic_temp_range, s.dynamic_temp_exponent);
                self.with(DynamicTemperature { temp: s.temp, range, exponent })
            }
            Kind::Infill => match &s.infill {
                Some(infill) => self.with(infill.clone().without_banned(&s.logit_bias)),
                None => self,
            },
            // Adaptive-p decides last, wherever the order names it.
            Kind::Dry | Kind::TopNSigma | Kind::AdaptiveP => self,
        }
    }

    fn with_penalties(mut self, s: &Settings) -> Self {
        let penalties = Penalties {
            repeat: s.repeat_penalty,
            frequency: s.frequency_penalty,
            presence: s.presence_penalty,
        };
        if s.repeat_last_n == 0 || penalties.are_off() {
            return self;
        }
        self.last_n = self.last_n.max(s.repeat_last_n);
        self.with(penalties)
    }

    fn with_xtc(self, s: &Settings) -> Self {
        let xtc = Xtc { probability: s.xtc_probability, threshold: s.xtc_threshold };
        match s.generator {
            _ if xtc.is_off() => self,
            Generator::Backstitch => self.with(xtc),
            Generator::Llama => self.with(LlamaXtc::new(xtc)),
        }
    }

    /// Make the chain, with all its buffers.
    pub fn build(self) -> Chain {
        let is_llama = self.generator == Generator::Llama;
        let mut chain = Chain {
            steps: self.steps,
            candidates: Candidates::new(self.n_vocab).with_rules(self.min_keep, self.generator),
            history: History::new(self.n_vocab, self.last_n),
            seed: self.seed,
            rng: Rng::new(self.seed),
            llama: is_llama.then(|| Box::new(Mt19937::new(0))),
        };
        chain.reseed(self.seed);
        chain
    }
}
