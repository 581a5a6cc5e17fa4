//! Flatter or sharper distributions.

use super::{Candidates, Greedy, History, Sampler};

/// Divides every logit by the temperature. Zero or less means [`Greedy`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature(pub f32);

impl Sampler for Temperature {
    fn apply(&self, candidates: &mut Candidates, history: &History) {
        let Self(temp) = *self;
        if temp > 0.0 {
            candidates.map(|c| c.logit / temp);
        } else {
            Greedy.apply(candidates, history);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::after;
    use super::*;

    #[test]
    fn logits_are_divided() {
        assert_eq!(after(&Temperature(0.5), &[1.0, -3.0]), [(0, 2.0), (1, -6.0)]);
    }

    #[test]
    fn zero_and_nonsense_are_greedy() {
        for temp in [0.0, -1.0, f32::NAN] {
            assert_eq!(after(&Temperature(temp), &[1.0, 4.0, 4.0]), [(1, 4.0)]);
        }
    }

    #[test]
    fn tiny_temperatures_overflow_to_the_best_token() {
        let kept = after(&Temperature(1e-45), &[0.0, 3.0, -2.0]);
        assert_eq!(kept, [(0, 0.0), (1, f32::INFINITY), (2, f32::NEG_INFINITY)]);
    }
}
