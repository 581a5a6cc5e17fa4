//! Wishes for single tokens.

use super::{Candidates, History, Sampler};
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Adds a number to the logits of some tokens; minus infinity bans one, unless nothing else is left.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitBias(pub Vec<(Token, f32)>);

impl Sampler for LogitBias {
    fn apply(&self, candidates: &mut Candidates, _: &History) {
        for &(token, bias) in &self.0 {
            candidates.add(token, bias);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::after;
    use super::*;
    use alloc::vec;

    #[test]
    fn biases_add_up_and_unknown_tokens_do_nothing() {
        let bias =
            LogitBias(vec![(Token(1), 0.5), (Token(1), 1.0), (Token(0), f32::NEG_INFINITY), (Token(9), 5.0)]);
        assert_eq!(after(&bias, &[0.0, 0.0, 3.0]), [(0, f32::NEG_INFINITY), (1, 1.5), (2, 3.0)]);
    }
}
