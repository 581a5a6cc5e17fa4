//! Penalties against repetition.

use super::{Candidates, History, Sampler};

/// Lower the logits of tokens that occur in the [`History`].
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::sampler::{Chain, Greedy, Penalties};
///
/// let penalties = Penalties { repeat: 1.0, frequency: 0.0, presence: 2.0 };
/// let mut chain = Chain::builder(2).last_n(8).with(penalties).with(Greedy).build();
/// assert_eq!(chain.sample(&[1.0, 0.0]), Some(Token(0)));
/// chain.accept(Token(0));
/// assert_eq!(chain.sample(&[1.0, 0.0]), Some(Token(1)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    /// The divisor of a positive logit and the factor of any other; 1 changes nothing (Keskar et
    /// al., "CTRL", 2019).
    pub repeat: f32,
    /// The number subtracted once per occurrence.
    pub frequency: f32,
    /// The number subtracted once if the token occurs at all.
    pub presence: f32,
}

impl Penalties {
    /// Return true if these penalties change no logit.
    pub(super) fn are_off(&self) -> bool {
        self.repeat == 1.0 && self.frequency == 0.0 && self.presence == 0.0
    }
}

impl Sampler for Penalties {
    fn apply(&mut self, candidates: &mut Candidates, history: &History) {
        candidates.map(|c| match history.count(c.id) {
            0 => c.logit,
            n => {
                let scaled = if c.logit <= 0.0 { c.logit * self.repeat } else { c.logit / self.repeat };
                scaled - (n as f32 * self.frequency + self.presence)
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use backstitch_kv::Token;

    #[test]
    fn occurrences_lower_the_logit() {
        let mut history = History::new(4, 64);
        [1, 2, 2].into_iter().for_each(|t| history.accept(Token(t)));
        let mut candidates = Candidates::new(4);
        candidates.load(&[1.0, 1.0, -1.0, -1.0]);
        Penalties { repeat: 2.0, frequency: 0.25, presence: 0.5 }.apply(&mut candidates, &history);
        let logits: Vec<f32> = candidates.items().iter().map(|c| c.logit).collect();
        assert_eq!(logits, [1.0, 0.5 - 0.75, -2.0 - 1.0, -1.0]);
    }

    #[test]
    fn a_repeat_penalty_of_zero_makes_no_nan() {
        let mut history = History::new(2, 1);
        history.accept(Token(0));
        let mut candidates = Candidates::new(2);
        candidates.load(&[f32::NEG_INFINITY, 1.0]);
        Penalties { repeat: 0.0, frequency: 0.0, presence: 0.0 }.apply(&mut candidates, &history);
        assert_eq!(candidates.items()[0].logit, f32::NEG_INFINITY);
    }
}
