//! Top-p (nucleus) sampling: a fixed probability mass.

use super::candidates::by_logit;
use super::{Candidates, History, Sampler};

/// Keep the fewest candidates whose probabilities, largest first, add up to at least `p`. One or
/// more keeps all.
///
/// Holtzman et al., "The curious case of neural text degeneration", 2019.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, TopP};
///
/// let mut candidates = Candidates::new(3);
/// candidates.load(&[2.0, 1.9, -5.0]);
/// TopP(0.9).apply(&mut candidates, &History::new(3, 0));
/// assert_eq!(candidates.items().len(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopP(pub f32);

impl Sampler for TopP {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0 >= 1.0 {
            return;
        }
        let goal = f64::from(self.0) * candidates.softmax();
        let (mut sum, mut n, min_keep) = (0.0, 0, candidates.min_keep());
        candidates.keep_prefix(by_logit, |c| {
            (sum, n) = (sum + f64::from(c.score), n + 1);
            sum >= goal && n >= min_keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{after, kept, logits_of};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nucleus_of_four() {
        let logits = logits_of(&[0.1, 0.2, 0.3, 0.4]);
        let cases: [(f32, &[u32]); 6] = [
            (0.0, &[3]),
            (0.39, &[3]),
            (0.41, &[3, 2]),
            (0.69, &[3, 2]),
            (0.71, &[3, 2, 1]),
            (1.0, &[0, 1, 2, 3]),
        ];
        for (p, expected) in cases {
            assert_eq!(kept(&TopP(p), &logits), expected, "p = {p}");
        }
    }

    #[test]
    fn without_any_chance_the_first_are_kept() {
        assert_eq!(after(&TopP(0.5), &[f32::NEG_INFINITY; 2]), [(0, f32::NEG_INFINITY)]);
    }

    proptest! {
        #[test]
        fn the_nucleus_is_enough_and_no_larger(
            logits in prop::collection::vec(-9.0f32..9.0, 1..400),
            p in 0.01f32..0.99,
        ) {
            let max = logits.iter().copied().fold(f32::MIN, f32::max);
            let weight = |id: u32| f64::from(libm::expf(logits[id as usize] - max));
            let total: f64 = (0..logits.len() as u32).map(weight).sum();
            let kept = kept(&TopP(p), &logits);
            let mass = |ids: &[u32]| ids.iter().map(|&id| weight(id)).sum::<f64>() / total;
            prop_assert!(mass(&kept) >= f64::from(p) - 1e-9);
            prop_assert!(mass(&kept[..kept.len() - 1]) < f64::from(p) + 1e-9);
        }
    }
}
