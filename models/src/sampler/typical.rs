//! Locally typical sampling: tokens about as surprising as expected.

use super::candidates::{by_logit, weight};
use super::{Candidate, Candidates, History, Sampler};

/// Keep the candidates whose surprise is closest to the entropy of the distribution, until their
/// probabilities add up to more than `p`. One or more keeps all.
///
/// Meister et al., "Locally typical sampling", 2022.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, Typical};
///
/// let mut candidates = Candidates::new(3);
/// candidates.load(&[0.6f32, 0.3, 0.1].map(f32::ln));
/// Typical(0.2).apply(&mut candidates, &History::new(3, 0));
/// assert_eq!(candidates.items()[0].id.0, 1); // not the likeliest, but the most typical
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typical(pub f32);

impl Sampler for Typical {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0 >= 1.0 {
            return;
        }
        let (total, max) = (candidates.softmax(), candidates.max_logit());
        let surprise = |weight: f32| libm::log(total) - libm::log(f64::from(weight));
        let entropy: f64 = candidates
            .items()
            .iter()
            .filter(|c| c.score > 0.0)
            .map(|c| f64::from(c.score) / total * surprise(c.score))
            .sum();
        candidates.set_scores(|c| (surprise(c.score) - entropy).abs() as f32);

        let goal = f64::from(self.0) * total;
        let (mut sum, mut n, min_keep) = (0.0, 0, candidates.min_keep());
        let by_score = |a: &Candidate, b: &Candidate| a.score.total_cmp(&b.score).then(by_logit(a, b));
        let is_enough = |c: &Candidate| {
            (sum, n) = (sum + f64::from(weight(c.logit, max)), n + 1);
            sum > goal && n >= min_keep
        };
        if candidates.follows_llama() {
            candidates.keep_prefix_in_order(by_score, is_enough);
        } else {
            candidates.keep_prefix(by_score, is_enough);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{after, kept, logits_of};
    use super::*;

    #[test]
    fn the_middle_of_three_comes_first() {
        // Probabilities 0.6, 0.3, 0.1: entropy 0.898, surprises 0.511, 1.204, 2.303, distances
        // 0.387, 0.306, 1.405.
        let logits = logits_of(&[0.6, 0.3, 0.1]);
        let cases: [(f32, &[u32]); 5] =
            [(0.0, &[1]), (0.29, &[1]), (0.31, &[0, 1]), (0.91, &[0, 1, 2]), (1.0, &[0, 1, 2])];
        for (p, expected) in cases {
            assert_eq!(kept(&Typical(p), &logits), expected, "p = {p}");
        }
    }

    #[test]
    fn impossible_tokens_come_last() {
        let logits = [f32::NEG_INFINITY, 0.0, 0.0];
        assert_eq!(kept(&Typical(0.9), &logits), [1, 2]);
        assert_eq!(after(&Typical(0.5), &[f32::NEG_INFINITY; 3]).len(), 1);
    }
}
