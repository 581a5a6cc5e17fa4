//! The divergence of a model from a base model on the same text.

use alloc::vec::Vec;

use libm::{exp, expf, sqrt};

use super::estimate::{Covariance, Estimate};
use super::score::Row;

/// The least logarithm of a probability of the base that counts, as in llama.cpp.
const LEAST: f32 = -16.0;

/// How a model's probabilities diverge from those of a base model: the Kullback-Leibler divergence
/// of each prediction, the agreement of the most probable tokens, and the two perplexities.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::judge::{Divergence, Row};
///
/// let mut divergence = Divergence::default();
/// let half = [0.5f32.ln(); 2];
/// divergence.add(&Row::new(&[0.0, 0.0], Token(0)), &half);
/// assert!(divergence.kld().mean().abs() < 1e-6);
/// assert_eq!(divergence.same_top(), 1.0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    surprise: Estimate,
    base_surprise: Estimate,
    covariance: Covariance,
    kld: Estimate,
    /// The divergence of each prediction.
    klds: Vec<f32>,
    n_same_top: u64,
    /// The squares of the differences of the token's probability.
    p_squares: Estimate,
}

/// Numbers at given parts of a sorted list.
///
/// # Example
/// ```
/// use backstitch_models::judge::Quantiles;
///
/// let quantiles = Quantiles::of(vec![3.0, 1.0, 2.0]);
/// assert_eq!((quantiles.at(0.0), quantiles.at(0.5), quantiles.at(1.0)), (1.0, 2.0, 3.0));
/// assert_eq!(quantiles.at(0.25), 1.5);
/// ```
#[derive(Clone, Debug)]
pub struct Quantiles(Vec<f32>);

impl Quantiles {
    /// Sort `values`.
    pub fn of(mut values: Vec<f32>) -> Self {
        values.sort_unstable_by(f32::total_cmp);
        Self(values)
    }

    /// Return the value below which the part `part` of all lies, interpolated between two
    /// neighbours; 0 of an empty list.
    pub fn at(&self, part: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0.0 };
        let place = part.clamp(0.0, 1.0) * last as f64;
        let below = (place as usize).min(last);
        let value = |i: usize| self.0.get(i.min(last)).copied().map_or(0.0, f64::from);
        let weight = place - below as f64;
        if weight == 0.0 { value(below) } else { (1.0 - weight) * value(below) + weight * value(below + 1) }
    }
}

impl Divergence {
    /// Add the prediction of a token, for which the base model has the natural logarithms of
    /// probabilities `base`.
    pub fn add(&mut self, row: &Row<'_>, base: &[f32]) {
        let token = row.token.0 as usize;
        let (surprise, base_log) = (row.surprise(), base.get(token).copied().unwrap_or(LEAST));
        self.surprise.add(surprise);
        self.base_surprise.add(-f64::from(base_log));
        self.covariance.add(surprise, -f64::from(base_log));
        let log_total = f64::from(row.max) + row.log_sum;
        let (mut kld, mut top, mut top_log) = (0.0, 0, f32::NEG_INFINITY);
        for (i, (&log, &logit)) in base.iter().zip(row.logits).enumerate() {
            if log > top_log {
                (top, top_log) = (i, log);
            }
            if log > LEAST {
                kld += f64::from(expf(log)) * (f64::from(log) - f64::from(logit) + log_total);
            }
        }
        self.kld.add(kld);
        self.klds.push(kld as f32);
        self.n_same_top += u64::from(row.top().0 as usize == top);
        let difference = exp(-surprise) - f64::from(expf(base_log));
        self.p_squares.add(difference * difference);
    }

    /// Return the mean divergence in nats.
    pub fn kld(&self) -> Estimate {
        self.kld
    }

    /// Return the divergences of all predictions, sorted.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles::of(self.klds.clone())
    }

    /// Return the part of predictions whose most probable token is that of the base model.
    pub fn same_top(&self) -> f64 {
        self.n_same_top as f64 / self.kld.n().max(1) as f64
    }

    /// Return the standard error of [`same_top`](Self::same_top).
    pub fn same_top_error(&self) -> f64 {
        let (p, n) = (self.same_top(), self.kld.n());
        if n > 1 { sqrt(p * (1.0 - p) / (n - 1) as f64) } else { 0.0 }
    }

    /// Return the mean surprise of the model.
    pub fn surprise(&self) -> Estimate {
        self.surprise
    }

    /// Return the mean surprise of the base model.
    pub fn base_surprise(&self) -> Estimate {
        self.base_surprise
    }

    /// Return the perplexity of the model over that of the base, and the standard error of this
    /// ratio. The two are correlated, so it is known better than either.
    pub fn ratio(&self) -> (f64, f64) {
        let ratio = exp(self.surprise.mean() - self.base_surprise.mean());
        let (error, base_error) = (self.surprise.error(), self.base_surprise.error());
        let variance = error * error + base_error * base_error - 2.0 * self.covariance.of_means();
        (ratio, ratio * sqrt(variance.max(0.0)))
    }

    /// Return the root of the mean square of the differences of the text's tokens' probabilities.
    pub fn rms_p_difference(&self) -> f64 {
        sqrt(self.p_squares.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_kv::Token;
    use proptest::prelude::*;

    fn logs(logits: &[f32]) -> Vec<f32> {
        let row = Row::new(logits, Token(0));
        logits.iter().map(|logit| logit - row.max - row.log_sum as f32).collect()
    }

    #[test]
    fn a_known_divergence() {
        let mut divergence = Divergence::default();
        let (p, q) = ([0.75f32, 0.25], [0.5f32, 0.5]);
        divergence.add(&Row::new(&q.map(f32::ln), Token(1)), &p.map(f32::ln));
        divergence.add(&Row::new(&p.map(f32::ln), Token(0)), &p.map(f32::ln));
        let wanted = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        assert!((divergence.kld().mean() - wanted / 2.0).abs() < 1e-6);
        assert!((divergence.quantiles().at(1.0) - wanted).abs() < 1e-6);
        assert_eq!(divergence.same_top(), 1.0);
        assert!((divergence.rms_p_difference() - (0.0625f64 / 2.0).sqrt()).abs() < 1e-6);
        let (ratio, error) = divergence.ratio();
        assert!((ratio - (0.5f64).sqrt()).abs() < 1e-6 && error > 0.0);
    }

    #[test]
    fn of_no_predictions_nothing_is_known() {
        let divergence = Divergence::default();
        assert_eq!((divergence.same_top(), divergence.same_top_error()), (0.0, 0.0));
        assert_eq!((divergence.ratio(), divergence.quantiles().at(0.5)), ((1.0, 0.0), 0.0));
    }

    proptest! {
        #[test]
        fn the_divergence_is_never_negative_and_zero_from_itself(
            pairs in proptest::collection::vec((-5f32..5.0, -5f32..5.0), 1..30),
        ) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let mut divergence = Divergence::default();
            divergence.add(&Row::new(&a, Token(0)), &logs(&b));
            prop_assert!(divergence.kld().mean() > -1e-5);
            let mut from_itself = Divergence::default();
            from_itself.add(&Row::new(&a, Token(0)), &logs(&a));
            prop_assert!(from_itself.kld().mean().abs() < 1e-5);
            prop_assert_eq!(from_itself.same_top(), 1.0);
        }
    }
}
