//! The settings of the usual chain.

use super::{DryBreakers, DryParams, logit_bias};
use crate::error::Error;
use crate::setters::setters;
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Settings of the usual samplers, with llama.cpp's defaults. [`Chain::new`](super::Chain::new)
/// makes samplers of them.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
///
/// let settings = Settings::default().temp(0.7).top_k(20).seed(42);
/// assert_eq!((settings.temp, settings.top_p), (0.7, 0.95));
/// assert!(settings.check(32_000).is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The temperature, see [`Temperature`](super::Temperature); 0 always takes the best token.
    pub temp: f32,
    /// The number of candidates kept by [`TopK`](super::TopK); 0 is off.
    pub top_k: usize,
    /// The probability mass kept by [`TopP`](super::TopP); 1 is off.
    pub top_p: f32,
    /// The relative threshold of [`MinP`](super::MinP); 0 is off.
    pub min_p: f32,
    /// The probability mass kept by [`Typical`](super::Typical); 1 is off.
    pub typical_p: f32,
    /// The number of recent tokens that the penalties look at; 0 is off.
    pub repeat_last_n: usize,
    /// The factor [`Penalties::repeat`](super::Penalties); 1 is off.
    pub repeat_penalty: f32,
    /// The penalty [`Penalties::frequency`](super::Penalties); 0 is off.
    pub frequency_penalty: f32,
    /// The penalty [`Penalties::presence`](super::Penalties); 0 is off.
    pub presence_penalty: f32,
    /// The settings of [`Dry`](super::Dry).
    pub dry: DryParams,
    /// The tokens across which [`Dry`](super::Dry) sees no repetition.
    pub dry_breakers: DryBreakers,
    /// The number of standard deviations of [`TopNSigma`](super::TopNSigma); 0 is off.
    pub top_n_sigma: f32,
    /// The probability [`Xtc::probability`](super::Xtc); 0 is off.
    pub xtc_probability: f32,
    /// The least probability [`Xtc::threshold`](super::Xtc); above 0.5 is off.
    pub xtc_threshold: f32,
    /// The range of [`DynamicTemperature`](super::DynamicTemperature) around `temp`; 0 is off.
    pub dynamic_temp_range: f32,
    /// The exponent [`DynamicTemperature::exponent`](super::DynamicTemperature).
    pub dynamic_temp_exponent: f32,
    /// The biases of [`LogitBias`](super::LogitBias).
    pub logit_bias: Vec<(Token, f32)>,
}

setters!(Settings {
    seed: u64,
    temp: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    repeat_last_n: usize,
    repeat_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    dry: DryParams,
    dry_breakers: DryBreakers,
    top_n_sigma: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    dynamic_temp_range: f32,
    dynamic_temp_exponent: f32,
    logit_bias: Vec<(Token, f32)>,
});

impl Settings {
    /// Check that the settings fit a vocabulary of `n_vocab` tokens.
    /// [`Chain::new`](super::Chain::new) ignores biases that do not.
    ///
    /// # Errors
    /// [`Error::LogitBias`] for a bias of a token that does not exist.
    pub fn check(&self, n_vocab: usize) -> Result<(), Error> {
        logit_bias::check(&self.logit_bias, n_vocab)
    }
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
            dry: DryParams::default(),
            dry_breakers: DryBreakers::default(),
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynamic_temp_range: 0.0,
            dynamic_temp_exponent: 1.0,
            logit_bias: Vec::new(),
        }
    }
}
