//! The usual knobs.

use alloc::vec::Vec;
use backstitch_kv::Token;

/// What people set; the defaults are llama.cpp's. [`Chain::new`](super::Chain::new) turns it into samplers.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the random numbers start.
    pub seed: u64,
    /// See [`Temperature`](super::Temperature); 0 always takes the best token.
    pub temp: f32,
    /// See [`TopK`](super::TopK); 0 is off.
    pub top_k: usize,
    /// See [`TopP`](super::TopP); 1 is off.
    pub top_p: f32,
    /// See [`MinP`](super::MinP); 0 is off.
    pub min_p: f32,
    /// See [`Typical`](super::Typical); 1 is off.
    pub typical_p: f32,
    /// How many of the last tokens the penalties look at; 0 is off.
    pub repeat_last_n: usize,
    /// See [`Penalties::repeat`](super::Penalties); 1 is off.
    pub repeat_penalty: f32,
    /// See [`Penalties::frequency`](super::Penalties); 0 is off.
    pub frequency_penalty: f32,
    /// See [`Penalties::presence`](super::Penalties); 0 is off.
    pub presence_penalty: f32,
    /// See [`LogitBias`](super::LogitBias).
    pub logit_bias: Vec<(Token, f32)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            temp: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}
