//! Mirostat: a text whose tokens are as surprising as wanted, on average.

use super::mt19937::OwnNumbers;
use super::{Candidates, Generator, History, Sampler};
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// The versions of [`Mirostat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirostatVersion {
    /// Keep a number of candidates that follows from an estimate of Zipf's exponent.
    One,
    /// Keep the candidates that are at most as surprising as the limit.
    Two,
}

/// Keep the likeliest candidates up to a limit of surprise, and move the limit after each token, so
/// that the tokens have a surprise of `tau` bits on average.
///
/// Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity",
/// 2020. The surprise of a token is that among the candidates kept. The limit begins at `2 * tau`
/// and changes by `eta` times the error. It belongs last in a chain, after a temperature.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Chain, Generator, Mirostat, MirostatVersion};
///
/// let mirostat = Mirostat::new(MirostatVersion::Two, 1.0, 0.1, 4, Generator::Backstitch);
/// let mut chain = Chain::builder(4).with(mirostat).build();
/// chain.sample(&[0.4f32, 0.3, 0.2, 0.1].map(f32::ln));
/// assert_eq!(chain.candidates().items().len(), 2); // 0.2 is 2.3 bits, more than 2
/// ```
#[derive(Debug, Clone)]
pub struct Mirostat {
    version: MirostatVersion,
    tau: f32,
    eta: f32,
    n_vocab: usize,
    /// The limit of surprise, in bits.
    mu: f32,
    /// The random numbers in llama.cpp's manner: none are used for a single candidate.
    own: Option<OwnNumbers>,
    /// The number of candidates from which version 1 estimates Zipf's exponent.
    n_best: usize,
    /// Probabilities of the likeliest candidates, for the estimate of version 1.
    best: Vec<f32>,
}

/// The usual number of candidates from which version 1 estimates Zipf's exponent.
const N_BEST: usize = 100;
/// The most of them, which bounds the time to find them.
const MOST_BEST: usize = 10_000;

impl Mirostat {
    /// Make a sampler for a vocabulary of `n_vocab` tokens. `tau`: bits.
    pub fn new(version: MirostatVersion, tau: f32, eta: f32, n_vocab: usize, generator: Generator) -> Self {
        let own = (generator == Generator::Llama).then(OwnNumbers::new);
        let best = Vec::with_capacity(N_BEST + 1);
        Mirostat { version, tau, eta, n_vocab, mu: 2.0 * tau, own, n_best: N_BEST, best }
    }

    /// Estimate Zipf's exponent from the `n` likeliest candidates, 10000 at most, in place of 100.
    pub fn with_best(mut self, n: usize) -> Self {
        self.n_best = n.min(MOST_BEST);
        self.best = Vec::with_capacity(self.n_best + 1);
        self
    }

    /// Return the number of candidates that version 1 keeps. `best` are probabilities, descending.
    fn n_kept(&self) -> usize {
        let (mut product, mut square) = (0.0f32, 0.0f32);
        for (i, pair) in (0u16..).zip(self.best.windows(2)) {
            let [likely, next] = pair else { continue };
            let t = libm::logf(f32::from(i + 2) / f32::from(i + 1));
            product += t * libm::logf(likely / next);
            square += t * t;
        }
        let exponent = product / square;
        let epsilon = exponent - 1.0;
        let over = 1.0 - libm::powf(self.n_vocab as f32, -epsilon);
        let k = libm::powf(epsilon * libm::exp2f(self.mu) / over, 1.0 / exponent);
        // A number that is none, or too large for llama.cpp's integers, is 1 there.
        if k < i32::MAX as f32 { (k as usize).max(1) } else { 1 }
    }

    /// Find the probabilities of the `n_best` likeliest candidates, descending.
    fn find_best(&mut self, candidates: &Candidates) {
        self.best.clear();
        for p in candidates.probabilities().map(|(_, p)| p) {
            if self.best.len() < self.n_best || self.best.last().is_some_and(|&least| p > least) {
                let at = self.best.partition_point(|&other| other >= p);
                self.best.insert(at, p);
                self.best.truncate(self.n_best);
            }
        }
    }
}

/// Return the surprise of a probability, in bits.
fn surprise(p: f32) -> f32 {
    -libm::log2f(p)
}

impl Sampler for Mirostat {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        candidates.softmax();
        match self.version {
            MirostatVersion::One => {
                self.find_best(candidates);
                candidates.keep_best(self.n_kept());
            }
            MirostatVersion::Two => {
                let mu = self.mu;
                candidates.keep_if(|_, p| surprise(p) <= mu || mu.is_nan());
                candidates.sort();
                if candidates.probabilities().next().is_some_and(|(_, p)| surprise(p) > mu) {
                    candidates.keep_best(1);
                }
            }
        }
        if let Some(own) = self.own.as_mut().filter(|_| candidates.items().len() > 1) {
            candidates.set_unit(own.double());
        }
    }

    fn drawn(&mut self, token: Token, candidates: &Candidates) {
        let p = candidates.probabilities().find(|&(id, _)| id == token).map_or(1.0, |(_, p)| p);
        self.mu -= self.eta * (surprise(p) - self.tau);
    }

    fn draw_from(&mut self, seed: u64, n_drawn: u64) {
        self.own.iter_mut().for_each(|own| own.start(seed, n_drawn));
    }

    fn reset(&mut self) {
        self.mu = 2.0 * self.tau;
    }

    /// Append the limit (f32) and the number of random numbers used (u32).
    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.mu.to_le_bytes());
        bytes.extend(self.own.as_ref().map_or(0, |own| own.used).to_le_bytes());
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let [mu, used] = SavedReader::exactly("the state of mirostat", bytes)?;
        self.mu = f32::from_bits(mu);
        self.own.iter_mut().for_each(|own| own.used = used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::logits_of;
    use super::super::{Chain, Settings};
    use super::*;

    fn mirostat(version: MirostatVersion, tau: f32, n_vocab: usize) -> Mirostat {
        Mirostat::new(version, tau, 0.1, n_vocab, Generator::Backstitch)
    }

    #[test]
    fn the_second_version_keeps_what_is_not_too_surprising() {
        let logits = logits_of(&[0.1, 0.4, 0.2, 0.3]);
        let kept = |tau| {
            let mut candidates = Candidates::new(4);
            candidates.load(&logits);
            mirostat(MirostatVersion::Two, tau, 4).apply(&mut candidates, &History::new(4, 0));
            candidates.items().iter().map(|c| c.id.0).collect::<Vec<_>>()
        };
        // Surprises: 1.32, 1.74, 2.32 and 3.32 bits; the limit is twice tau.
        let cases: [(f32, &[u32]); 5] =
            [(0.0, &[1]), (0.8, &[1]), (0.9, &[1, 3]), (1.2, &[1, 3, 2]), (5.0, &[1, 3, 2, 0])];
        for (tau, expected) in cases {
            assert_eq!(kept(tau), expected, "{tau}");
        }
        let mut equal = Candidates::new(4);
        equal.load(&[0.0; 4]);
        mirostat(MirostatVersion::Two, 0.5, 4).apply(&mut equal, &History::new(4, 0));
        assert_eq!(equal.items().len(), 1); // each is 2 bits, more than 1
    }

    #[test]
    fn the_first_version_keeps_a_number_that_follows_from_zipf() {
        // Probabilities 1/i^1.5: epsilon 0.5; k = (0.5 * 2^mu / (1 - n^-0.5))^(1 / 1.5).
        let logits: Vec<f32> = (1..=1000).map(|i| -1.5 * libm::logf(i as f32)).collect();
        for (tau, expected) in [(1.0f32, 1.621), (2.0, 4.085), (4.0, 25.94)] {
            let exact =
                libm::powf(0.5 * libm::exp2f(2.0 * tau) / (1.0 - libm::powf(1000.0, -0.5)), 1.0 / 1.5);
            assert!((exact - expected).abs() < 0.01, "{exact}");
            let mut candidates = Candidates::new(1000);
            candidates.load(&logits);
            mirostat(MirostatVersion::One, tau, 1000).apply(&mut candidates, &History::new(1000, 0));
            assert_eq!(candidates.items().len(), expected as usize, "{tau}");
        }
    }

    #[test]
    fn the_estimate_is_that_of_as_many_candidates_as_wished() {
        // Steep at the beginning, flat behind it: two candidates alone tell of a large exponent.
        let logits: Vec<f32> = (1..=1000).map(|i| -3.0 * libm::logf((i as f32).min(3.0))).collect();
        let kept = |n| {
            let mut mirostat = mirostat(MirostatVersion::One, 2.0, 1000).with_best(n);
            let mut candidates = Candidates::new(1000);
            candidates.load(&logits);
            mirostat.apply(&mut candidates, &History::new(1000, 0));
            assert_eq!(mirostat.best.len(), n);
            candidates.items().len()
        };
        assert_eq!(kept(2), 3); // (2 * 2^4 / (1 - 1000^-2))^(1 / 3)
        // The exponent is 2.00, 1.99 and 1.98.
        assert_eq!([100, 300, 1000].map(kept), [4, 4, 4]);
    }

    #[test]
    fn texts_become_as_surprising_as_wanted() {
        // About 6 bits of entropy, so both wishes are within reach.
        let logits: Vec<f32> = (0..200).map(|i| -0.02 * i as f32).collect();
        for version in [MirostatVersion::One, MirostatVersion::Two] {
            for tau in [3.0, 5.0] {
                let settings = Settings::default().temp(1.0).mirostat(Some(version)).mirostat_tau(tau);
                let mut chain = Chain::new(200, &settings.seed(3));
                let mut total = 0.0;
                for _ in 0..3000 {
                    let token = chain.sample(&logits).unwrap();
                    total +=
                        chain.probabilities().find(|&(id, _)| id == token).map_or(0.0, |(_, p)| surprise(p));
                    chain.accept(token);
                }
                let mean = total / 3000.0;
                assert!((mean - tau).abs() < 0.1, "{version:?} {tau}: {mean}");
            }
        }
    }

    #[test]
    fn banned_tokens_stay_banned_and_nothing_panics() {
        for version in [MirostatVersion::One, MirostatVersion::Two] {
            for tau in [0.0, 5.0, f32::MAX, f32::NAN] {
                let mut chain = Chain::builder(3).with(mirostat(version, tau, 3)).build();
                assert_eq!(chain.sample(&[f32::NEG_INFINITY; 3]), None);
                assert_eq!(chain.sample(&[f32::NEG_INFINITY, f32::NAN, 1.0]), Some(Token(2)));
                assert!(chain.sample(&[0.0; 3]).is_some());
            }
        }
    }
}
