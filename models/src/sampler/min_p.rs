//! Min-p sampling: a threshold relative to the best token.

use super::{Candidates, History, Sampler};

/// Keep the candidates that are at least `p` times as likely as the likeliest. Zero or less keeps
/// all.
///
/// Nguyen et al., "Turning up the heat: min-p sampling", 2024.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, MinP, Sampler};
///
/// let mut candidates = Candidates::new(3);
/// candidates.load(&[0.0, -0.5, -3.0]); // ratios 1, 0.61 and 0.05
/// MinP(0.1).apply(&mut candidates, &History::new(3, 0));
/// assert_eq!(candidates.items().len(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MinP(pub f32);

impl Sampler for MinP {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0 > 0.0 {
            // A ratio of probabilities is a difference of logits, so no exponential is needed.
            let least = candidates.max_logit() + libm::logf(self.0);
            let n = candidates.items().iter().filter(|c| c.logit >= least).count();
            if n >= candidates.min_keep() {
                candidates.keep_at_least(least);
            } else {
                candidates.keep_best(candidates.min_keep());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{kept, logits_of};
    use super::*;

    #[test]
    fn the_threshold_is_a_share_of_the_best() {
        let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
        let cases: [(f32, &[u32]); 6] = [
            (0.0, &[0, 1, 2, 3]),
            (0.24, &[0, 1, 2, 3]),
            (0.26, &[1, 2, 3]),
            (0.51, &[2, 3]),
            (0.76, &[3]),
            (2.0, &[3]),
        ];
        for (p, expected) in cases {
            assert_eq!(kept(&MinP(p), &logits), expected, "p = {p}");
        }
    }
}
