//! The settings of the usual chain.

use super::adaptive_p::MAX_DECAY;
use super::{DryBreakers, DryParams, Generator, Infill, Kind, MirostatVersion, logit_bias};
use crate::error::Error;
use crate::setters::setters;
use crate::vocab::Vocab;
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
    /// The random numbers of the draw.
    pub generator: Generator,
    /// The order of the samplers after the bias. A sampler that it does not name is off, and one
    /// that it names twice runs twice. Mirostat replaces all of them but the temperature.
    pub order: Vec<Kind>,
    /// The least number of candidates that typical, top-p, min-p and XTC keep; 0 is off.
    pub min_keep: usize,
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
    /// The version of [`Mirostat`](super::Mirostat); `None` is off.
    pub mirostat: Option<MirostatVersion>,
    /// The surprise that tokens should have on average, in bits.
    pub mirostat_tau: f32,
    /// The rate at which mirostat learns.
    pub mirostat_eta: f32,
    /// The target of [`AdaptiveP`](super::AdaptiveP), which is off unless `order` names it; below 0
    /// it changes no probability.
    pub adaptive_target: f32,
    /// The decay of [`AdaptiveP`](super::AdaptiveP).
    pub adaptive_decay: f32,
    /// The sampler [`Infill`], which is off unless `order` names it; `None` is off.
    pub infill: Option<Infill>,
    /// The biases of [`LogitBias`](super::LogitBias).
    pub logit_bias: Vec<(Token, f32)>,
}

/// The most samplers in an order.
const MAX_ORDER: usize = 64;

/// The numbers that a setting may have.
#[derive(Clone, Copy)]
enum Range {
    Any,
    AtLeastZero,
    AtMostOne,
    Decay,
    Factor,
    Probability,
}

impl Range {
    fn holds(self, x: f32) -> bool {
        let is_inside = match self {
            Range::Any => true,
            Range::AtLeastZero => x >= 0.0,
            Range::AtMostOne => x <= 1.0,
            Range::Decay => (0.0..=MAX_DECAY).contains(&x),
            Range::Factor => x > 0.0 && (1.0 / x).is_finite(),
            Range::Probability => (0.0..=1.0).contains(&x),
        };
        is_inside && x.is_finite()
    }

    fn text(self) -> &'static str {
        match self {
            Range::Any => "a finite number",
            Range::AtLeastZero => "0 or more",
            Range::AtMostOne => "1 or less",
            Range::Decay => "between 0 and 0.99",
            Range::Factor => "more than 0",
            Range::Probability => "between 0 and 1",
        }
    }
}

setters!(Settings {
    seed: u64,
    generator: Generator,
    order: Vec<Kind>,
    min_keep: usize,
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
    mirostat: Option<MirostatVersion>,
    mirostat_tau: f32,
    mirostat_eta: f32,
    adaptive_target: f32,
    adaptive_decay: f32,
    infill: Option<Infill>,
    logit_bias: Vec<(Token, f32)>,
});

impl Settings {
    /// Never draw the tokens that the model's file wants suppressed ([`Vocab::suppressed`]).
    #[must_use]
    pub fn suppress(mut self, vocab: &Vocab) -> Self {
        self.logit_bias.extend(vocab.suppressed().iter().map(|&id| (Token(id), f32::NEG_INFINITY)));
        self
    }

    /// Check that every setting is in its range, and that the biases fit a vocabulary of `n_vocab`
    /// tokens. [`Chain::new`](super::Chain::new) takes any settings: it ignores biases that do not
    /// fit, and a number out of range draws some token.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first number out of its range. [`Error::TooManySamplers`] if the
    /// order has more than 64. [`Error::LogitBias`] for a bias of a token that does not exist.
    pub fn check(&self, n_vocab: usize) -> Result<(), Error> {
        for (name, value, range) in self.ranges() {
            if !range.holds(value) {
                return Err(Error::Setting { name, value, wanted: range.text() });
            }
        }
        if self.order.len() > MAX_ORDER {
            return Err(Error::TooManySamplers { n: self.order.len(), max: MAX_ORDER });
        }
        if self.logit_bias.iter().any(|(_, bias)| bias.is_nan()) {
            let wanted = "a number; minus infinity bans a token";
            return Err(Error::Setting { name: "logit bias", value: f32::NAN, wanted });
        }
        logit_bias::check(&self.logit_bias, n_vocab)
    }

    /// Return the name, the value and the range of each number.
    fn ranges(&self) -> [(&'static str, f32, Range); 18] {
        [
            ("temperature", self.temp, Range::AtLeastZero),
            ("top-p", self.top_p, Range::Probability),
            ("min-p", self.min_p, Range::Probability),
            ("typical-p", self.typical_p, Range::Any),
            ("repeat penalty", self.repeat_penalty, Range::Factor),
            ("frequency penalty", self.frequency_penalty, Range::Any),
            ("presence penalty", self.presence_penalty, Range::Any),
            ("DRY multiplier", self.dry.multiplier, Range::Any),
            ("DRY base", self.dry.base, Range::Any),
            ("top-nσ", self.top_n_sigma, Range::Any),
            ("XTC probability", self.xtc_probability, Range::Probability),
            ("XTC threshold", self.xtc_threshold, Range::Probability),
            ("dynamic temperature range", self.dynamic_temp_range, Range::Any),
            ("dynamic temperature exponent", self.dynamic_temp_exponent, Range::Any),
            ("mirostat target entropy", self.mirostat_tau, Range::Any),
            ("mirostat learning rate", self.mirostat_eta, Range::Any),
            ("adaptive-p target", self.adaptive_target, Range::AtMostOne),
            ("adaptive-p decay", self.adaptive_decay, Range::Decay),
        ]
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            generator: Generator::Backstitch,
            order: Kind::USUAL.to_vec(),
            min_keep: 0,
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
            mirostat: None,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            infill: None,
            logit_bias: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn settings_out_of_range_are_named() {
        let settings = Settings::default;
        assert!(settings().check(10).is_ok());
        let cases = [
            (settings().temp(-0.1), "temperature", "0 or more"),
            (settings().temp(f32::INFINITY), "temperature", "0 or more"),
            (settings().top_p(1.5), "top-p", "between 0 and 1"),
            (settings().min_p(f32::NAN), "min-p", "between 0 and 1"),
            (settings().repeat_penalty(0.0), "repeat penalty", "more than 0"),
            (settings().repeat_penalty(1e-45), "repeat penalty", "more than 0"),
            (settings().presence_penalty(f32::NEG_INFINITY), "presence penalty", "a finite number"),
            (settings().mirostat_tau(f32::NAN), "mirostat target entropy", "a finite number"),
            (settings().adaptive_target(1.1), "adaptive-p target", "1 or less"),
            (settings().adaptive_decay(1.0), "adaptive-p decay", "between 0 and 0.99"),
        ];
        for (settings, name, range) in cases {
            let error = settings.check(10).unwrap_err();
            assert!(matches!(error, Error::Setting { name: found, .. } if found == name), "{error}");
            assert!(error.to_string().contains(name) && error.to_string().ends_with(range), "{error}");
        }
    }

    #[test]
    fn an_order_is_bounded_and_biases_are_numbers_of_tokens() {
        let order = |n| Settings::default().order(vec![Kind::TopK; n]).check(10);
        assert!(order(0).is_ok() && order(64).is_ok());
        assert!(matches!(order(65), Err(Error::TooManySamplers { n: 65, max: 64 })));
        let bias = |id, bias| Settings::default().logit_bias(vec![(Token(id), bias)]).check(10);
        assert!(bias(9, f32::NEG_INFINITY).is_ok());
        assert!(matches!(bias(10, 1.0), Err(Error::LogitBias { token: 10, n_vocab: 10 })));
        assert!(matches!(bias(1, f32::NAN), Err(Error::Setting { name: "logit bias", .. })));
    }
}
