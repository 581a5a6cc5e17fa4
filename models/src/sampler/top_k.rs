//! A fixed number of tokens.

use super::{Candidates, History, Sampler};

/// Keeps the `k` candidates with the largest logits, sorted. Zero keeps all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK(pub usize);

impl Sampler for TopK {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        if self.0 > 0 {
            candidates.keep_best(self.0);
        }
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
