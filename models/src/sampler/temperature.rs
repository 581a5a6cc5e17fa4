//! Temperature: flatter or sharper distributions.

use super::{Candidates, Greedy, History, Sampler};

/// Divide every logit by the temperature. Zero or less means [`Greedy`], and so does a temperature
/// so small that the largest quotient is not finite.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, Temperature};
///
/// let mut candidates = Candidates::new(2);
/// candidates.load(&[1.0, 2.0]);
/// Temperature(0.5).apply(&mut candidates, &History::new(2, 0));
/// assert_eq!(candidates.max_logit(), 4.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature(pub f32);

impl Sampler for Temperature {
    fn apply(&mut self, candidates: &mut Candidates, history: &History) {
        let Self(temp) = *self;
        let max = candidates.max_logit();
        if temp > 0.0 && (max / temp).is_finite() == max.is_finite() {
            candidates.map(|c| c.logit / temp);
        } else if candidates.follows_llama() {
            candidates.ban_all_but_best();
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
        assert_eq!(after(&Temperature(1e-45), &[0.0, 3.0, -2.0]), [(1, 3.0)]);
        assert_eq!(after(&Temperature(1e-45), &[-4.0, -3.0]), [(1, -3.0)]);
    }
}
