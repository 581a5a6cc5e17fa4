//! Logit biases: a number added to the logits of single tokens.

use super::{Candidates, History, Sampler};
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Add a number to the logits of some tokens; minus infinity bans a token. Tokens that do not exist
/// change nothing.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::{Chain, Greedy, LogitBias};
///
/// let ban = LogitBias(vec![(Token(1), f32::NEG_INFINITY)]);
/// let mut chain = Chain::builder(3).with(ban).with(Greedy).build();
/// assert_eq!(chain.sample(&[0.5, 2.0, 1.0]), Some(Token(2)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LogitBias(pub Vec<(Token, f32)>);

impl LogitBias {
    /// Return biases for a vocabulary of `n_vocab` tokens, all of which exist.
    ///
    /// # Errors
    /// [`Error::LogitBias`] for the first token that is not in the vocabulary.
    pub fn checked(biases: Vec<(Token, f32)>, n_vocab: usize) -> Result<Self, Error> {
        check(&biases, n_vocab).map(|()| Self(biases))
    }
}

/// The most biases with which only the best candidates are listed. In such a list each token is
/// searched for, in a list of the whole vocabulary it is not.
const MAX_LOWERED: usize = 64;

/// Check that all tokens exist.
pub(super) fn check(biases: &[(Token, f32)], n_vocab: usize) -> Result<(), Error> {
    match biases.iter().find(|(token, _)| token.0 as usize >= n_vocab) {
        Some((token, _)) => Err(Error::LogitBias { token: token.0, n_vocab }),
        None => Ok(()),
    }
}

impl Sampler for LogitBias {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        for &(token, bias) in &self.0 {
            candidates.add(token, bias);
        }
    }

    fn n_lowered(&self) -> Option<usize> {
        let is_few = self.0.len() <= MAX_LOWERED;
        (is_few && self.0.iter().all(|&(_, bias)| bias <= 0.0)).then_some(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::after;
    use super::super::{Chain, Greedy, TopK};
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn biases_add_up_and_unknown_tokens_do_nothing() {
        let bias =
            LogitBias(vec![(Token(1), 0.5), (Token(1), 1.0), (Token(0), f32::NEG_INFINITY), (Token(9), 5.0)]);
        assert_eq!(after(&bias, &[0.0, 0.0, 3.0]), [(0, f32::NEG_INFINITY), (1, 1.5), (2, 3.0)]);
    }

    /// Biases that say nothing of themselves, so that a chain lists the whole vocabulary.
    #[derive(Clone)]
    struct Silent(LogitBias);

    impl Sampler for Silent {
        fn apply(&mut self, candidates: &mut Candidates, history: &History) {
            self.0.apply(candidates, history);
        }
    }

    proptest! {
        #[test]
        fn tokens_that_are_made_worse_leave_the_draw_as_if_all_were_listed(
            logits in prop::collection::vec((-40i8..40).prop_map(|x| f32::from(x) / 4.0), 1..500),
            lowered in prop::collection::vec((0u32..500, prop_oneof![Just(f32::NEG_INFINITY), -9.0f32..0.0]), 0..20),
            k in 1usize..60,
        ) {
            let bias = LogitBias(lowered.into_iter().map(|(id, bias)| (Token(id), bias)).collect());
            prop_assert!(bias.n_lowered().is_some());
            let builder = || Chain::builder(logits.len()).seed(5);
            let mut best = builder().with(bias.clone()).with(TopK(k)).build();
            let mut all = builder().with(Silent(bias)).with(TopK(k)).build();
            for _ in 0..10 {
                prop_assert_eq!(best.sample(&logits), all.sample(&logits));
            }
        }
    }

    #[test]
    fn with_many_biases_the_whole_vocabulary_is_listed() {
        let ban = |n: u32| LogitBias((0..n).map(|id| (Token(id), f32::NEG_INFINITY)).collect());
        assert_eq!((ban(64).n_lowered(), ban(65).n_lowered()), (Some(64), None));
    }

    #[test]
    fn a_token_that_is_made_better_counts_although_it_was_not_among_the_best() {
        let bias = LogitBias(vec![(Token(150), 9.0)]);
        let mut chain = Chain::builder(200).with(bias).with(Greedy).build();
        let logits: Vec<f32> = (0u8..200).map(|i| -f32::from(i) / 100.0).collect();
        assert_eq!(chain.sample(&logits), Some(Token(150)));
    }

    #[test]
    fn a_token_that_does_not_exist_is_named() {
        let error = LogitBias::checked(vec![(Token(3), 1.0), (Token(288), 1.0)], 288).unwrap_err();
        assert!(matches!(error, Error::LogitBias { token: 288, n_vocab: 288 }));
        let text = alloc::string::ToString::to_string(&error);
        assert!(text.contains("token 288") && text.contains("0 to 287"), "{text}");
        assert!(LogitBias::checked(vec![(Token(287), 1.0)], 288).is_ok());
    }
}
