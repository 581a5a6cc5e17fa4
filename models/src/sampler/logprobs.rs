//! Log-probabilities: the model's own distribution, before any sampler.

use alloc::vec::Vec;
use backstitch_kv::Token;

/// A token and the natural logarithm of its probability.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Logprobs;
///
/// let mut best = Vec::new();
/// Logprobs::of(&[0.0, 0.0]).top(1, &mut best);
/// assert_eq!(best[0].logprob, -f64::ln(2.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Logprob {
    /// The token.
    pub token: Token,
    /// The logarithm of its probability; minus infinity if it cannot come.
    pub logprob: f64,
}

/// The log-probabilities of a row of logits: their log-softmax.
///
/// The sum runs in `f64` in token order, so the same logits give the same bits everywhere. Logits
/// that are not numbers count as minus infinity; infinite ones share all probability among them.
///
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::Logprobs;
///
/// let logprobs = Logprobs::of(&[1.0, 3.0, 1.0]);
/// let mut best = Vec::new();
/// logprobs.top(2, &mut best);
/// assert_eq!((best[0].token, best[1].token), (Token(1), Token(0)));
/// assert_eq!(logprobs.get(Token(1)), Some(best[0].logprob));
/// assert!((logprobs.iter().map(f64::exp).sum::<f64>() - 1.0).abs() < 1e-12);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Logprobs<'a> {
    logits: &'a [f32],
    max: f64,
    /// The logarithm of the sum of `exp(logit - max)`.
    log_sum: f64,
}

impl<'a> Logprobs<'a> {
    /// Return the log-probabilities of `logits`, `[n_vocab]`.
    pub fn of(logits: &'a [f32]) -> Self {
        let max = logits.iter().copied().map(number).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|&logit| libm::exp(less(number(logit), max))).sum();
        Self { logits, max, log_sum: libm::log(sum) }
    }

    /// Return the log-probability of `token`; `None` if it does not exist.
    pub fn get(&self, token: Token) -> Option<f64> {
        self.logits.get(token.0 as usize).map(|&logit| self.logprob(logit))
    }

    /// Return all log-probabilities, in token order.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.logits.iter().map(|&logit| self.logprob(logit))
    }

    /// Replace `best` by the `n` likeliest tokens, likeliest first, the lower token first among
    /// equals.
    ///
    /// `best` grows to the size of the vocabulary meanwhile. A buffer that is used again allocates
    /// nothing.
    pub fn top(&self, n: usize, best: &mut Vec<Logprob>) {
        best.clear();
        best.extend((0..).zip(self.iter()).map(|(id, logprob)| Logprob { token: Token(id), logprob }));
        let by_rank = |a: &Logprob, b: &Logprob| b.logprob.total_cmp(&a.logprob).then(a.token.cmp(&b.token));
        if n < best.len() {
            best.select_nth_unstable_by(n, by_rank);
            best.truncate(n);
        }
        best.sort_unstable_by(by_rank);
    }

    fn logprob(&self, logit: f32) -> f64 {
        match less(number(logit), self.max) {
            f64::NEG_INFINITY => f64::NEG_INFINITY,
            less => less - self.log_sum,
        }
    }
}

/// Return `logit - max`, and 0 for an infinite maximum itself.
fn less(logit: f64, max: f64) -> f64 {
    match logit {
        f64::NEG_INFINITY => f64::NEG_INFINITY,
        _ if logit == max => 0.0,
        _ => logit - max,
    }
}

/// Return the logit, never NaN, and never a negative zero, which would rank below a positive one.
fn number(logit: f32) -> f64 {
    if logit.is_nan() { f64::NEG_INFINITY } else { f64::from(logit) + 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn top(logits: &[f32], n: usize) -> Vec<(u32, f64)> {
        let mut best = Vec::new();
        Logprobs::of(logits).top(n, &mut best);
        best.into_iter().map(|best| (best.token.0, best.logprob)).collect()
    }

    #[test]
    fn halves_and_quarters() {
        let logits = [2.0f32.ln(), 0.0, 0.0];
        let ln = |x: f64| x.ln();
        for ((token, found), (wanted, p)) in top(&logits, 3).into_iter().zip([(0, 0.5), (1, 0.25), (2, 0.25)])
        {
            assert!(token == wanted && (found - ln(p)).abs() < 1e-7, "{token} {found}");
        }
    }

    #[test]
    fn what_cannot_come_has_no_chance() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(top(&[-inf, nan, 5.0], 1), [(2, 0.0)]);
        assert_eq!(top(&[inf, 3.0, inf], 3), [(0, -(2f64.ln())), (2, -(2f64.ln())), (1, f64::NEG_INFINITY)]);
        assert!(top(&[-inf, nan], 2).iter().all(|best| best.1 == f64::NEG_INFINITY));
        assert_eq!((top(&[], 3), Logprobs::of(&[]).get(Token(0))), (Vec::new(), None));
    }

    proptest! {
        #[test]
        fn the_best_are_the_front_of_all(logits in prop::collection::vec(-9i8..9, 1..200), n in 0usize..220) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let all = top(&logits, logits.len());
            prop_assert!(all.windows(2).all(|pair| pair[0].1 > pair[1].1 || pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0));
            prop_assert_eq!(&top(&logits, n)[..], &all[..n.min(all.len())]);
            let sum: f64 = all.iter().map(|best| best.1.exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-12, "{}", sum);
        }
    }
}
