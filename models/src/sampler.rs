//! Sampling: from logits to the next token.
//!
//! A sampler is a small value that changes a list of candidates: it raises or lowers logits, or
//! drops tokens. A [`Chain`] runs several samplers in order and draws one of the tokens left. Most
//! samplers have no state: the [`History`] of recent tokens and the position of the [`Rng`] belong
//! to the chain. A sampler with a state of its own overrides [`Sampler::accept`] or
//! [`Sampler::drawn`], [`Sampler::save`], [`Sampler::restore`] and [`Sampler::reset`]. A clone of a
//! chain clones that state, and [`Chain::state`] holds its bytes.
//!
//! Equal logits, settings and seeds give the same token on every platform. All sums run in `f64`
//! over the candidates in their current order: token order after loading, and descending logits
//! (the lower token first among equals) after a sampler has selected. A logit that is not a number
//! counts as minus infinity. No sampler of this module drops the last candidate, and none
//! allocates. A token with a logit of minus infinity is banned: [`Chain::sample`] never draws it,
//! and returns `None` if no other token is left.
//!
//! Meanings and defaults are those of llama.cpp's samplers of the same names.
//!
//! ```
//! use backstitch_kv::Token;
//! use backstitch_models::sampler::{Chain, Settings};
//!
//! let mut chain = Chain::new(4, &Settings::default().temp(0.0));
//! let token = chain.sample(&[0.1, 2.5, -1.0, 2.4]);
//! assert_eq!(token, Some(Token(1)));
//! chain.accept(Token(1));
//! ```

mod adaptive_p;
mod candidates;
mod chain;
mod dry;
mod dynamic_temperature;
mod greedy;
mod history;
mod infill;
mod kind;
mod logit_bias;
mod logprobs;
mod min_p;
mod mirostat;
mod mt19937;
mod penalties;
mod rng;
mod settings;
mod state;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod trail;
mod typical;
mod xtc;

pub use adaptive_p::AdaptiveP;
pub use candidates::{Candidate, Candidates};
pub use chain::{Builder, Chain};
pub use dry::{Dry, DryBreakers, DryParams};
pub use dynamic_temperature::DynamicTemperature;
pub use greedy::Greedy;
pub use history::History;
pub use infill::Infill;
pub use kind::Kind;
pub use logit_bias::LogitBias;
pub use logprobs::{Logprob, Logprobs};
pub use min_p::MinP;
pub use mirostat::{Mirostat, MirostatVersion};
pub use penalties::Penalties;
pub use rng::{Generator, Rng};
pub use settings::Settings;
pub use state::{SamplerState, State};
pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use trail::Trail;
pub use typical::Typical;
pub use xtc::Xtc;

use crate::error::Error;
use alloc::{boxed::Box, string::String, vec::Vec};
use backstitch_kv::Token;

/// One step between the logits and the draw.
///
/// A sampler without state needs [`Sampler::apply`] and `Clone` alone. A sampler with a state keeps
/// it in buffers that its constructor allocates. `apply`, `accept` and `save` (into a vector with
/// enough capacity) run once per token, where nothing may allocate.
///
/// ```
/// use backstitch_kv::Token;
/// use backstitch_models::Error;
/// use backstitch_models::sampler::{Candidates, Chain, Greedy, History, Sampler};
///
/// /// Bans every token that was accepted before.
/// #[derive(Clone)]
/// struct Once(Vec<bool>);
///
/// impl Sampler for Once {
///     fn apply(&mut self, candidates: &mut Candidates, _: &History) {
///         let is_used = |token: Token| self.0.get(token.0 as usize) == Some(&true);
///         candidates.map(|c| if is_used(c.id) { f32::NEG_INFINITY } else { c.logit });
///     }
///
///     fn accept(&mut self, token: Token) {
///         self.0.get_mut(token.0 as usize).into_iter().for_each(|used| *used = true);
///     }
///
///     fn reset(&mut self) {
///         self.0.fill(false);
///     }
///
///     fn save(&self, bytes: &mut Vec<u8>) {
///         bytes.extend(self.0.iter().map(|&used| u8::from(used)));
///     }
///
///     fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
///         let (found, wanted) = (bytes.len() as u64, self.0.len() as u64);
///         if found != wanted {
///             return Err(Error::SavedLength { what: "the used tokens", found, wanted });
///         }
///         self.0.iter_mut().zip(bytes).for_each(|(used, &byte)| *used = byte != 0);
///         Ok(())
///     }
/// }
///
/// let mut chain = Chain::builder(3).with(Once(vec![false; 3])).with(Greedy).build();
/// let mut tokens = Vec::new();
/// while let Some(token) = chain.sample(&[0.5, 2.0, 1.0]) {
///     chain.accept(token);
///     tokens.push(token.0);
/// }
/// assert_eq!(tokens, [1, 2, 0]); // then all are banned
/// ```
pub trait Sampler: CloneBoxed + Send + Sync {
    /// Change logits or drop candidates; `history` holds the tokens accepted so far.
    fn apply(&mut self, candidates: &mut Candidates, history: &History);

    /// Return `k` if [`Sampler::apply`] does nothing but [`Candidates::keep_best`] with this `k`. A
    /// chain that begins with such a sampler lists the best tokens alone, and not the vocabulary.
    fn n_best(&self) -> Option<usize> {
        None
    }

    /// Return `n` if [`Sampler::apply`] lowers the logits of at most `n` candidates, or bans them,
    /// and does nothing else: the best behind it are among `n` more of the best before it. Such
    /// samplers in front of one with [`Sampler::n_best`] do not make a chain list the vocabulary.
    fn n_lowered(&self) -> Option<usize> {
        None
    }

    /// Take note of a token of the sequence, from the prompt or drawn.
    fn accept(&mut self, token: Token) {
        let _ = token;
    }

    /// Do the work of the next [`Sampler::apply`] that needs no logits, and keep its result until
    /// then. Results are the same without this call. It exists so that a thread beside the one that
    /// runs the model can do the work meanwhile; see [`Chain::prepare`].
    fn prepare(&mut self) {}

    /// Return true if [`Sampler::prepare`] has nothing to do.
    fn is_prepared(&self) -> bool {
        true
    }

    /// Return the reason for which the last [`Sampler::apply`] banned every token, if it knows one.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Take note of the token that was drawn from `candidates`, which this sampler and those after
    /// it left. It is accepted afterwards only if it becomes part of the sequence.
    fn drawn(&mut self, token: Token, candidates: &Candidates) {
        let _ = (token, candidates);
    }

    /// Take random numbers of its own from those of `seed`, without the ones that the chain's first
    /// `n_drawn` draws may have used. A sampler that uses [`Candidates::chance`] has none.
    fn draw_from(&mut self, seed: u64, n_drawn: u64) {
        let _ = (seed, n_drawn);
    }

    /// Return true if accepting all tokens of a sequence always leads to the same state. A
    /// [`Session`](crate::Session) then records no states for rollbacks.
    fn follows_from_tokens(&self) -> bool {
        false
    }

    /// Return to the state in which no token was accepted or drawn.
    fn reset(&mut self) {}

    /// Append the state to `bytes`; nothing if there is none.
    ///
    /// A sampler with a state writes at least one byte in every state. A state that was not saved
    /// is then noticed where it should be restored. A state that was not saved may be rebuilt by
    /// accepting all tokens of the sequence; what followed from draws begins anew then.
    fn save(&self, bytes: &mut Vec<u8>) {
        let _ = bytes;
    }

    /// Take over the state that [`Sampler::save`] wrote.
    ///
    /// # Errors
    /// [`Error::SavedLength`] or [`Error::SavedValue`] if the bytes are not such a state. A sampler
    /// without state refuses all bytes.
    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match bytes.len() as u64 {
            0 => Ok(()),
            found => {
                Err(Error::SavedLength { what: "the state of a sampler that has none", found, wanted: 0 })
            }
        }
    }
}

/// Cloning behind a box. Every [`Sampler`] that is `Clone` implements it, so that a [`Chain`] can
/// be cloned.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{CloneBoxed, Greedy, Sampler};
///
/// let boxed: Box<dyn Sampler> = Box::new(Greedy);
/// let copy: Box<dyn Sampler> = boxed.clone_boxed();
/// # drop(copy);
/// ```
pub trait CloneBoxed {
    /// Return an independent copy.
    fn clone_boxed(&self) -> Box<dyn Sampler>;
}

impl<T: Sampler + Clone + 'static> CloneBoxed for T {
    fn clone_boxed(&self) -> Box<dyn Sampler> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token and logit of what one sampler leaves.
    pub(super) fn after(sampler: &dyn Sampler, logits: &[f32]) -> Vec<(u32, f32)> {
        let mut candidates = Candidates::new(logits.len());
        candidates.load(logits);
        sampler.clone_boxed().apply(&mut candidates, &History::new(logits.len(), 0));
        candidates.items().iter().map(|c| (c.id.0, c.logit)).collect()
    }

    /// Return the tokens that one sampler leaves.
    pub(super) fn kept(sampler: &dyn Sampler, logits: &[f32]) -> Vec<u32> {
        after(sampler, logits).into_iter().map(|(id, _)| id).collect()
    }

    /// Return logits whose softmax is `probabilities`.
    pub(super) fn logits_of(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }
}
