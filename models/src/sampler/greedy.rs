//! Greedy decoding: always the best token.

use super::{Candidates, History, Sampler};

/// Keep the candidate with the largest logit; the lowest token among equals.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::{Chain, Greedy};
///
/// let mut chain = Chain::builder(3).with(Greedy).build();
/// assert_eq!(chain.sample(&[0.5, 2.0, 2.0]), Some(Token(1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greedy;

impl Sampler for Greedy {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        candidates.keep_best(1);
    }

    fn n_best(&self) -> Option<usize> {
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::after;
    use super::*;

    #[test]
    fn the_lowest_of_the_best_is_kept() {
        assert_eq!(after(&Greedy, &[0.0, 2.0, f32::NAN, 2.0]), [(1, 2.0)]);
    }
}
