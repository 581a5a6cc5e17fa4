//! Top-k sampling: a fixed number of candidates.

use super::{Candidates, History, Sampler};

/// Keep the `k` candidates with the largest logits, sorted. Zero keeps all.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Candidates, History, Sampler, TopK};
///
/// let mut candidates = Candidates::new(3);
/// candidates.load(&[1.0, 3.0, 2.0]);
/// TopK(2).apply(&mut candidates, &History::new(3, 0));
/// assert_eq!(candidates.items().len(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK(pub usize);

impl Sampler for TopK {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0 > 0 {
            candidates.keep_best(self.0);
        }
    }

    fn n_best(&self) -> Option<usize> {
        (self.0 > 0).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::after;
    use super::*;

    #[test]
    fn the_best_are_kept_in_order() {
        assert_eq!(after(&TopK(3), &[0.1, 0.4, 0.2, 0.4]), [(1, 0.4), (3, 0.4), (2, 0.2)]);
    }

    #[test]
    fn zero_keeps_all_and_more_than_all_is_all() {
        assert_eq!(after(&TopK(0), &[1.0, 2.0]), [(0, 1.0), (1, 2.0)]);
        assert_eq!(after(&TopK(9), &[1.0, 2.0]), [(1, 2.0), (0, 1.0)]);
    }
}
