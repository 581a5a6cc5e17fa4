//! From logits to the next token.
//!
//! A sampler is a small value that changes a list of candidates: raises or lowers logits, or drops tokens. A [`Chain`]
//! runs several in order and draws one of what is left. Samplers hold no state: everything that changes from token to
//! token is the [`History`] of recent tokens and the position of the [`Rng`], both owned by the chain, so that a chain
//! can be cloned before a guess and put back after it.
//!
//! The same logits, settings and seed give the same token on every platform. All sums run in `f64` over the candidates
//! in their current order, which is token order after loading and descending logits (lower token first among equals)
//! after a sampler has selected. Logits that are not numbers count as minus infinity. No sampler drops the last
//! candidate, and none allocates.
//!
//! Meanings and defaults are those of llama.cpp's samplers of the same names.
//!
//! ```
//! use backstitch_kv::Token;
//! use backstitch_models::sampler::{Chain, Settings};
//!
//! let mut chain = Chain::new(4, &Settings { temp: 0.0, ..Settings::default() });
//! let token = chain.sample(&[0.1, 2.5, -1.0, 2.4]);
//! assert_eq!(token, Some(Token(1)));
//! chain.accept(Token(1));
//! ```

mod candidates;
mod chain;
mod greedy;
mod history;
mod logit_bias;
mod min_p;
mod penalties;
mod rng;
mod settings;
mod state;
mod temperature;
mod top_k;
mod top_p;
mod typical;

pub use candidates::{Candidate, Candidates};
pub use chain::{Builder, Chain};
pub use greedy::Greedy;
pub use history::History;
pub use logit_bias::LogitBias;
pub use min_p::MinP;
pub use penalties::Penalties;
pub use rng::Rng;
pub use settings::Settings;
pub use state::State;
pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_p::TopP;
pub use typical::Typical;

/// One step between the logits and the draw.
pub trait Sampler {
    /// Changes logits or drops candidates; `history` holds the tokens accepted so far.
    fn apply(&self, candidates: &mut Candidates, history: &History);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Token and logit of what one sampler leaves.
    pub(super) fn after(sampler: &dyn Sampler, logits: &[f32]) -> Vec<(u32, f32)> {
        let mut candidates = Candidates::new(logits.len());
        candidates.load(logits);
        sampler.apply(&mut candidates, &History::new(logits.len(), 0));
        candidates.items().iter().map(|c| (c.id.0, c.logit)).collect()
    }

    /// The tokens one sampler leaves.
    pub(super) fn kept(sampler: &dyn Sampler, logits: &[f32]) -> Vec<u32> {
        after(sampler, logits).into_iter().map(|(id, _)| id).collect()
    }

    /// Logits whose softmax is `probabilities`.
    pub(super) fn logits_of(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }
}
