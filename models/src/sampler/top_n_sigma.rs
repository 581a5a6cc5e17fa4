//! Top-nσ: candidates near the best logit, measured in standard deviations.

use super::{Candidates, History, Sampler};

/// Keep the candidates whose logit is at most `n` standard deviations below the best. Zero or less
/// keeps all.
///
/// The deviation is that of all candidates that are not banned. Because it is measured on logits,
/// temperature changes nothing about what is kept (Tang et al., "Top-nσ: not all logits are you
/// need", 2024).
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, TopNSigma};
///
/// let mut candidates = Candidates::new(4);
/// candidates.load(&[0.1f32, 0.2, 0.3, 0.4].map(f32::ln));
/// TopNSigma(1.0).apply(&mut candidates, &History::new(4, 0));
/// let ids: Vec<u32> = candidates.items().iter().map(|c| c.id.0).collect();
/// assert_eq!(ids, [2, 3]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopNSigma(pub f32);

impl Sampler for TopNSigma {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0.is_nan() || self.0 <= 0.0 {
            return;
        }
        let logits = || candidates.items().iter().map(|c| f64::from(c.logit)).filter(|l| l.is_finite());
        let n = logits().count().max(1) as f64;
        let mean = logits().sum::<f64>() / n;
        let variance = logits().map(|logit| (logit - mean) * (logit - mean)).sum::<f64>() / n;
        let below = f64::from(self.0) * libm::sqrt(variance);
        let least = (f64::from(candidates.max_logit()) - below) as f32;
        if candidates.follows_llama() {
            candidates.ban_below(least);
        } else {
            candidates.keep_at_least(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{kept, logits_of};
    use super::*;

    #[test]
    fn the_number_of_deviations_decides() {
        let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
        let cases: [(f32, &[u32]); 5] = [
            (1.0, &[2, 3]),
            (3.0, &[0, 1, 2, 3]),
            (0.0, &[0, 1, 2, 3]),
            (1e-9, &[3]),
            (f32::NAN, &[0, 1, 2, 3]),
        ];
        for (n, expected) in cases {
            assert_eq!(kept(&TopNSigma(n), &logits), expected, "n = {n}");
        }
    }

    #[test]
    fn banned_tokens_do_not_widen_it() {
        assert_eq!(kept(&TopNSigma(1.0), &[f32::NEG_INFINITY, 0.0, 1.0, 1.1]), [2, 3]);
        assert_eq!(kept(&TopNSigma(1.0), &[f32::NEG_INFINITY; 2]).len(), 2);
        assert_eq!(kept(&TopNSigma(1.0), &[f32::INFINITY, 0.0]), [0]);
    }
}
