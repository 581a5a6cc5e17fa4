//! Means with their standard errors.

use libm::{exp, sqrt};

/// The mean of numbers that come one by one, and its standard error.
///
/// # Example
/// ```
/// use backstitch_models::judge::Estimate;
///
/// let mut estimate = Estimate::default();
/// [1.0, 2.0, 3.0].into_iter().for_each(|x| estimate.add(x));
/// assert_eq!((estimate.n(), estimate.mean()), (3, 2.0));
/// assert!((estimate.error() - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    n: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Estimate {
    /// Add a number.
    pub fn add(&mut self, x: f64) {
        self.n += 1;
        self.sum += x;
        self.sum_of_squares += x * x;
    }

    /// Return the number of numbers.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Return the mean; 0 of no numbers.
    pub fn mean(&self) -> f64 {
        self.sum / self.n.max(1) as f64
    }

    /// Return the standard error of the mean; 0 of fewer than two numbers.
    pub fn error(&self) -> f64 {
        let n = self.n.max(1) as f64;
        let variance = self.sum_of_squares / n - self.mean() * self.mean();
        if self.n > 1 && variance > 0.0 { sqrt(variance / (n - 1.0)) } else { 0.0 }
    }

    /// Return the perplexity if the numbers are [surprises](super::Row::surprise): the exponential
    /// of their mean.
    pub fn perplexity(&self) -> f64 {
        exp(self.mean())
    }

    /// Return the standard error of the perplexity.
    pub fn perplexity_error(&self) -> f64 {
        self.perplexity() * self.error()
    }
}

/// The covariance of two means over the same places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Covariance {
    n: u64,
    sums: (f64, f64),
    sum_of_products: f64,
}

impl Covariance {
    /// Add a pair of numbers.
    pub(super) fn add(&mut self, a: f64, b: f64) {
        self.n += 1;
        self.sums.0 += a;
        self.sums.1 += b;
        self.sum_of_products += a * b;
    }

    /// Return the covariance of the two means; 0 of fewer than two pairs.
    pub(super) fn of_means(&self) -> f64 {
        if self.n < 2 {
            return 0.0;
        }
        let n = self.n as f64;
        (self.sum_of_products / n - self.sums.0 / n * (self.sums.1 / n)) / (n - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_numbers_there_is_no_error() {
        let mut estimate = Estimate::default();
        assert_eq!((estimate.mean(), estimate.error(), estimate.perplexity()), (0.0, 0.0, 1.0));
        estimate.add(2.0);
        assert_eq!((estimate.mean(), estimate.error()), (2.0, 0.0));
        estimate.add(2.0);
        assert_eq!(estimate.error(), 0.0);
    }

    #[test]
    fn the_covariance_of_a_mean_with_itself_is_the_square_of_its_error() {
        let (mut estimate, mut covariance) = (Estimate::default(), Covariance::default());
        for x in [1.0, 4.0, 2.5, -3.0] {
            estimate.add(x);
            covariance.add(x, x);
        }
        assert!((covariance.of_means() - estimate.error() * estimate.error()).abs() < 1e-12);
        assert_eq!(Covariance::default().of_means(), 0.0);
    }
}
