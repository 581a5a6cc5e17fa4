//! XTC: excluding the top choices, so that a text takes turns that are good but not the likeliest.

use super::mt19937::OwnNumbers;
use super::{Candidates, History, Sampler};
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;

/// With `probability`, drop all candidates that have at least the probability `threshold`, except
/// the least likely of them.
///
/// With fewer than two such candidates nothing is dropped; a threshold above 0.5 therefore turns it
/// off, as a probability of zero does. Whether it happens for a token follows from the random
/// numbers of the chain ([`Candidates::chance`]), so a sequence that is rolled back makes the same
/// choices again.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, Xtc};
///
/// let mut candidates = Candidates::new(4);
/// candidates.load(&[0.4f32, 0.3, 0.2, 0.1].map(f32::ln));
/// Xtc { probability: 1.0, threshold: 0.15 }.apply(&mut candidates, &History::new(4, 0));
/// let ids: Vec<u32> = candidates.items().iter().map(|c| c.id.0).collect();
/// assert_eq!(ids, [2, 3]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Xtc {
    /// The probability that candidates are dropped for a token; 0 is off.
    pub probability: f32,
    /// The least probability of a candidate that may be dropped.
    pub threshold: f32,
}

impl Xtc {
    /// Return true if this sampler never drops a candidate.
    pub(super) fn is_off(&self) -> bool {
        self.probability.is_nan() || self.probability <= 0.0 || self.threshold > 0.5
    }

    /// Drop all top choices but the least likely one, if enough candidates are left then.
    fn drop_top(&self, candidates: &mut Candidates) {
        candidates.sort();
        let total = candidates.softmax();
        let threshold = f64::from(self.threshold);
        let is_top = |score: f32| score > 0.0 && f64::from(score) / total >= threshold;
        let n_top = candidates.items().iter().take_while(|c| is_top(c.score)).count();
        let n_dropped = n_top.saturating_sub(1);
        if candidates.items().len().saturating_sub(n_dropped) >= candidates.min_keep() {
            candidates.drop_best(n_dropped);
        }
    }
}

impl Sampler for Xtc {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if !self.is_off() && candidates.chance() <= f64::from(self.probability) {
            self.drop_top(candidates);
        }
    }
}

/// [`Xtc`] with random numbers as llama.cpp has them: its own, one for each token with at least two
/// candidates.
#[derive(Debug, Clone)]
pub(super) struct LlamaXtc {
    xtc: Xtc,
    own: OwnNumbers,
}

impl LlamaXtc {
    pub fn new(xtc: Xtc) -> Self {
        LlamaXtc { xtc, own: OwnNumbers::new() }
    }
}

impl Sampler for LlamaXtc {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        let is_on = !self.xtc.is_off() && candidates.items().len() >= 2;
        if is_on && self.own.float() <= self.xtc.probability {
            self.xtc.drop_top(candidates);
        }
    }

    fn draw_from(&mut self, seed: u64, n_drawn: u64) {
        self.own.start(seed, n_drawn);
    }

    /// Append the number of random numbers used (u32).
    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.own.used.to_le_bytes());
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        [self.own.used] = SavedReader::exactly("the random numbers of XTC", bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{kept, logits_of};
    use super::*;

    #[test]
    fn the_least_likely_top_choice_stays() {
        let logits = logits_of(&[0.4, 0.3, 0.2, 0.1]);
        let cases: [(f32, f32, &[u32]); 6] = [
            (1.0, 0.09, &[3]),
            (1.0, 0.19, &[2, 3]),
            (1.0, 0.29, &[1, 2, 3]),
            (1.0, 0.39, &[0, 1, 2, 3]),
            (0.0, 0.09, &[0, 1, 2, 3]),
            (1.0, 0.6, &[0, 1, 2, 3]),
        ];
        for (probability, threshold, expected) in cases {
            assert_eq!(kept(&Xtc { probability, threshold }, &logits), expected, "{probability} {threshold}");
        }
    }

    #[test]
    fn banned_tokens_are_no_top_choice() {
        assert_eq!(kept(&Xtc { probability: 1.0, threshold: 0.0 }, &[0.0, f32::NEG_INFINITY, 0.0]), [2, 1]);
        assert_eq!(kept(&Xtc { probability: 1.0, threshold: 0.0 }, &[f32::NEG_INFINITY; 2]).len(), 2);
    }

    #[test]
    fn it_happens_as_often_as_it_should_and_again_after_a_rollback() {
        let sampler = Xtc { probability: 0.25, threshold: 0.1 };
        let mut rng = super::super::Rng::new(5);
        let mut n_dropped = 0;
        for _ in 0..4000 {
            let drops = |rng| {
                let mut candidates = Candidates::new(2);
                candidates.load(&[0.0, 0.0]);
                candidates.set_chance(rng);
                sampler.clone().apply(&mut candidates, &History::new(2, 0));
                candidates.items().len() == 1
            };
            n_dropped += u32::from(drops(rng));
            assert_eq!(drops(rng), drops(rng));
            rng.bits();
        }
        assert!((900..1100).contains(&n_dropped), "{n_dropped}");
    }
}
