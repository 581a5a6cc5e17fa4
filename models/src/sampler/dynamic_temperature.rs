//! Dynamic temperature: the less certain the model, the flatter the distribution.

use super::{Candidates, History, Sampler, Temperature};

/// Divide every logit by a temperature between `temp - range` and `temp + range`, by the entropy of
/// the candidates: the least if one candidate has all probability, the most if all are equally
/// likely.
///
/// In between the temperature grows with the normalised entropy to the power of `exponent`. A range
/// of zero is [`Temperature`].
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, DynamicTemperature, History, Sampler};
///
/// let mut sampler = DynamicTemperature { temp: 1.0, range: 0.5, exponent: 1.0 };
/// let mut candidates = Candidates::new(2);
/// candidates.load(&[3.0, 3.0]);
/// sampler.apply(&mut candidates, &History::new(2, 0));
/// assert_eq!(candidates.max_logit(), 2.0); // divided by 1.5
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicTemperature {
    /// The temperature in the middle of the range.
    pub temp: f32,
    /// The greatest distance from it; 0 makes it constant.
    pub range: f32,
    /// The exponent of the normalised entropy.
    pub exponent: f32,
}

impl Sampler for DynamicTemperature {
    fn apply(&mut self, candidates: &mut Candidates, history: &History) {
        if self.range.is_nan() || self.range <= 0.0 {
            return Temperature(self.temp).apply(candidates, history);
        }
        let n = candidates.items().len();
        if n <= 1 {
            return;
        }
        if candidates.follows_llama() {
            candidates.sort();
        }
        let total = candidates.softmax();
        let share = |score: f32| f64::from(score) / total;
        let likely = candidates.items().iter().map(|c| share(c.score)).filter(|&p| p > 0.0);
        let entropy: f64 = likely.map(|p| -p * libm::log(p)).sum();
        let normalised = (entropy / libm::log(n as f64)).clamp(0.0, 1.0) as f32;
        let (least, most) = ((self.temp - self.range).max(0.0), self.temp + self.range);
        let temp = least + (most - least) * libm::powf(normalised, self.exponent);
        Temperature(temp).apply(candidates, history);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{after, logits_of};
    use super::*;

    /// The temperature that was applied, from the logit of the last candidate.
    fn temperature(sampler: DynamicTemperature, logits: &[f32]) -> f32 {
        logits.last().unwrap() / after(&sampler, logits).last().unwrap().1
    }

    #[test]
    fn entropy_decides_between_the_bounds() {
        let sampler = DynamicTemperature { temp: 1.0, range: 0.5, exponent: 1.0 };
        assert!((temperature(sampler, &[2.0; 4]) - 1.5).abs() < 1e-6);
        assert!((temperature(sampler, &[-60.0, -60.0, 40.0]) - 0.5).abs() < 1e-3);
        // Entropy of 0.9 and 0.1: 0.3251 of 0.6931.
        let logits = logits_of(&[0.9, 0.1]);
        assert!((temperature(sampler, &logits) - (0.5 + 0.4690)).abs() < 1e-3);
        let squared = DynamicTemperature { exponent: 2.0, ..sampler };
        assert!((temperature(squared, &logits) - (0.5 + 0.4690 * 0.4690)).abs() < 1e-3);
    }

    #[test]
    fn no_range_is_a_plain_temperature_and_one_candidate_stays() {
        let plain = DynamicTemperature { temp: 0.5, range: 0.0, exponent: 1.0 };
        assert_eq!(after(&plain, &[1.0, -3.0]), [(0, 2.0), (1, -6.0)]);
        let sampler = DynamicTemperature { temp: 1.0, range: 1.0, exponent: 1.0 };
        assert_eq!(after(&sampler, &[5.0]), [(0, 5.0)]);
        assert_eq!(after(&sampler, &[f32::NEG_INFINITY; 2]).len(), 1);
    }
}
