//! The pace of evaluation: how many tokens of prompts a step may have.

use std::time::Duration;

/// The time that a step may take. A new request waits for one step, and texts that are being
/// generated pause for as long.
const STEP: f64 = 0.2;

/// The least and the most tokens of prompts in a step.
const LEAST: usize = 16;
const MOST: usize = 2048;

/// The speed of prompts, estimated from the steps so far.
#[derive(Debug)]
pub(super) struct Pace {
    tokens_per_second: f64,
}

impl Default for Pace {
    /// Return a slow pace, which the first steps correct.
    fn default() -> Self {
        Pace { tokens_per_second: 320.0 }
    }
}

impl Pace {
    /// Return the number of tokens of prompts for the next step.
    pub fn n_tokens(&self) -> usize {
        // The cast saturates.
        ((self.tokens_per_second * STEP) as usize).clamp(LEAST, MOST)
    }

    /// Note a step. Steps of few tokens say little about prompts.
    pub fn note(&mut self, n_tokens: usize, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if n_tokens < LEAST || seconds <= 0.0 {
            return;
        }
        let measured = n_tokens as f64 / seconds;
        // A slower step counts at once, so that the next one is not late; faster ones step by step.
        self.tokens_per_second = match measured < self.tokens_per_second {
            true => measured,
            false => 0.5 * (self.tokens_per_second + measured),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_take_about_the_time_that_they_may() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            let n = pace.n_tokens();
            pace.note(n, Duration::from_secs_f64(n as f64 / 1000.0));
        }
        assert!((190..=210).contains(&pace.n_tokens()), "{}", pace.n_tokens());
        pace.note(200, Duration::from_secs(2));
        assert_eq!(pace.n_tokens(), 20);
    }

    #[test]
    fn every_step_has_some_tokens() {
        let mut pace = Pace::default();
        pace.note(16, Duration::from_secs(1000));
        assert_eq!(pace.n_tokens(), LEAST);
        (0..40).for_each(|_| pace.note(2048, Duration::from_nanos(1)));
        assert_eq!(pace.n_tokens(), MOST);
    }
}
