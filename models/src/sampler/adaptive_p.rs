//! Adaptive-p: tokens whose probability is near a target, on average.

use super::mt19937::OwnNumbers;
use super::{Candidates, Generator, History, Sampler};
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Prefer the candidates whose probability is near a target, and move the target after each token,
/// so that the probabilities of the tokens drawn average `target`.
///
/// The average is exponential and forgets by `decay` with each token that was drawn and then
/// accepted. The logits become a curve
/// around the adapted target: quadratic near it and linear far from it. It belongs last in a chain.
/// A negative target leaves the candidates as they are.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{AdaptiveP, Chain, Generator};
///
/// let sampler = AdaptiveP::new(0.3, 0.9, 3, Generator::Backstitch);
/// let mut chain = Chain::builder(3).with(sampler).build();
/// chain.sample(&[0.6f32, 0.3, 0.1].map(f32::ln));
/// let best = chain.probabilities().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(token, _)| token.0);
/// assert_eq!(best, Some(1)); // the one with the probability 0.3
/// ```
#[derive(Debug, Clone)]
pub struct AdaptiveP {
    target: f32,
    decay: f32,
    /// The sum of the probabilities of the tokens drawn, each weighed by `decay` for its age.
    weighted_sum: f32,
    /// The sum of those weights.
    total_weight: f32,
    /// The probabilities of the candidates before their logits were changed, in their order.
    original: Vec<f32>,
    /// The token that was drawn last, with its original probability, until one is accepted.
    pending: Option<(Token, f32)>,
    /// The random numbers in llama.cpp's manner: none are used for a single candidate.
    own: Option<OwnNumbers>,
}

/// The distance from the target, as a probability, over which the curve becomes linear.
const WIDTH: f32 = 0.3;
/// The logit of a candidate at the target.
const PEAK: f32 = 5.0;
/// The steepness of the curve.
const SHARPNESS: f32 = 10.0;
/// The greatest decay.
pub(super) const MAX_DECAY: f32 = 0.99;

impl AdaptiveP {
    /// Make a sampler for a vocabulary of `n_vocab` tokens. `decay` is at most 0.99.
    pub fn new(target: f32, decay: f32, n_vocab: usize, generator: Generator) -> Self {
        let decay = decay.clamp(0.0, MAX_DECAY);
        let own = (generator == Generator::Llama).then(OwnNumbers::new);
        let original = Vec::with_capacity(n_vocab);
        let (weighted_sum, total_weight, pending) = (0.0, 0.0, None);
        let mut sampler = AdaptiveP { target, decay, weighted_sum, total_weight, original, pending, own };
        sampler.reset();
        sampler
    }

    /// Return the probability that tokens should have now.
    fn adapted_target(&self) -> f32 {
        let target = self.target.clamp(0.0, 1.0);
        let adapted = 2.0 * target - self.weighted_sum / self.total_weight;
        (if self.total_weight == 0.0 { target } else { adapted }).clamp(0.0, 1.0)
    }
}

impl Sampler for AdaptiveP {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        let total = candidates.softmax();
        self.original.clear();
        if self.target >= 0.0 && total > 0.0 {
            let target = self.adapted_target();
            self.original.extend(candidates.items().iter().map(|c| (f64::from(c.score) / total) as f32));
            candidates.map(|c| {
                let p = (f64::from(c.score) / total) as f32;
                let distance = ((p - target) / WIDTH).abs();
                let logit = PEAK - SHARPNESS * distance * distance / (1.0 + distance);
                if c.logit == f32::NEG_INFINITY { c.logit } else { logit }
            });
        }
        if let Some(own) = self.own.as_mut().filter(|_| candidates.items().len() > 1) {
            candidates.set_unit(own.double());
        }
    }

    fn drawn(&mut self, token: Token, candidates: &Candidates) {
        let index = candidates.items().iter().position(|c| c.id == token);
        self.pending = index.and_then(|index| self.original.get(index)).map(|&p| (token, p));
    }

    fn accept(&mut self, token: Token) {
        if let Some((_, p)) = self.pending.take().filter(|&(drawn, _)| drawn == token) {
            self.weighted_sum = p + self.decay * self.weighted_sum;
            self.total_weight = 1.0 + self.decay * self.total_weight;
        }
    }

    fn draw_from(&mut self, seed: u64, n_drawn: u64) {
        self.own.iter_mut().for_each(|own| own.start(seed, n_drawn));
    }

    fn reset(&mut self) {
        self.total_weight = 1.0 / (1.0 - self.decay);
        self.weighted_sum = self.target * self.total_weight;
        self.pending = None;
    }

    /// Append the two sums (f32 each) and the number of random numbers used (u32); then a token
    /// that was drawn and not accepted yet (u32) with its probability (f32), if there is one.
    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend([self.weighted_sum, self.total_weight].map(f32::to_le_bytes).as_flattened());
        bytes.extend(self.own.as_ref().map_or(0, |own| own.used).to_le_bytes());
        if let Some((token, p)) = self.pending {
            bytes.extend([token.0, p.to_bits()].map(u32::to_le_bytes).as_flattened());
        }
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut from = SavedReader::new("the state of adaptive-p", bytes);
        let [sum, weight, used] = from.array()?;
        let pending: Option<[u32; 2]> = (from.left() > 0).then(|| from.array()).transpose()?;
        from.end()?;
        self.pending = pending.map(|[token, p]| (Token(token), f32::from_bits(p)));
        (self.weighted_sum, self.total_weight) = (f32::from_bits(sum), f32::from_bits(weight));
        self.own.iter_mut().for_each(|own| own.used = used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{after, logits_of};
    use super::super::{Chain, Kind, Settings};
    use super::*;
    use alloc::vec;

    fn sampler(target: f32) -> AdaptiveP {
        AdaptiveP::new(target, 0.9, 3, Generator::Backstitch)
    }

    #[test]
    fn logits_fall_with_the_distance_from_the_target() {
        let logits: Vec<f32> =
            after(&sampler(0.3), &logits_of(&[0.6, 0.3, 0.1])).iter().map(|c| c.1).collect();
        // Distances 1, 0 and 2/3 of the width: 5 - 10 / 2, 5, 5 - 10 * 4/9 / (5/3).
        for (logit, expected) in logits.into_iter().zip([0.0, 5.0, 5.0 - 8.0 / 3.0]) {
            assert!((logit - expected).abs() < 1e-4, "{logit} {expected}");
        }
        assert_eq!(after(&sampler(-1.0), &[1.0, 2.0]), [(0, 1.0), (1, 2.0)]);
        assert_eq!(after(&sampler(0.5), &[1.0, f32::NEG_INFINITY])[1].1, f32::NEG_INFINITY);
    }

    #[test]
    fn what_was_drawn_moves_the_target() {
        let mut sampler = sampler(0.5);
        assert!((sampler.adapted_target() - 0.5).abs() < 1e-6);
        let mut candidates = Candidates::new(2);
        candidates.load(&logits_of(&[0.9, 0.1]));
        sampler.apply(&mut candidates, &History::new(2, 0));
        sampler.drawn(Token(0), &candidates);
        let mut bytes = Vec::new();
        sampler.save(&mut bytes);
        let mut resumed = self::sampler(0.5);
        resumed.restore(&bytes).unwrap();
        // Another token than the one drawn counts for nothing, and ends the wait for that one.
        for token in [Token(1), Token(0)] {
            sampler.accept(token);
            assert!((sampler.adapted_target() - 0.5).abs() < 1e-6);
        }
        sampler = resumed;
        sampler.accept(Token(0));
        // The average of ten fives with one of them replaced by 0.9: 0.54.
        assert!((sampler.adapted_target() - 0.46).abs() < 1e-5);
        sampler.reset();
        assert!((sampler.adapted_target() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn texts_have_the_wanted_probability_on_average() {
        let logits: Vec<f32> = (0..50).map(|i| -0.3 * i as f32).collect();
        // Eight of them are at least a tenth as likely as the first.
        let total: f32 = logits.iter().take(8).map(|l| libm::expf(*l)).sum();
        for target in [0.08, 0.12] {
            let order = [&Kind::USUAL[..], &[Kind::AdaptiveP]].concat();
            let settings = Settings::default().temp(1.0).top_k(0).top_p(1.0).min_p(0.1).order(order);
            let mut chain = Chain::new(50, &settings.adaptive_target(target).seed(3));
            let drawn = (0..3000).filter_map(|_| chain.sample(&logits).inspect(|&token| chain.accept(token)));
            let drawn: Vec<Token> = drawn.collect();
            let mean = drawn.iter().map(|t| libm::expf(logits[t.0 as usize]) / total).sum::<f32>() / 3000.0;
            assert!((mean - target).abs() < 0.02, "{target}: {mean}");
        }
    }

    #[test]
    fn no_value_makes_it_panic() {
        for target in [0.0, 1.0, 9.0, f32::NAN] {
            for decay in [-1.0, 2.0, f32::NAN] {
                let sampler = AdaptiveP::new(target, decay, 3, Generator::Backstitch);
                let mut chain = Chain::builder(3).with(sampler).build();
                for logits in [vec![], vec![f32::NEG_INFINITY; 3]] {
                    assert_eq!(chain.sample(&logits), None);
                }
                chain.sample(&[f32::INFINITY, 0.0, f32::NAN]);
            }
        }
    }
}
