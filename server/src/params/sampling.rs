//! The samplers of a request, by llama-server's names.

use super::fields::Fields;
use crate::http::{ApiError, App};
use backstitch_models::Token;
use backstitch_models::grammar::GrammarSampler;
use backstitch_models::sampler::{
    Builder, Chain, Dry, DryBreakers, DryParams, DynamicTemperature, Greedy, LogitBias, MinP, Penalties,
    TopK, TopNSigma, TopP, Typical, Xtc,
};
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};

/// The most candidates that a request may ask for beside each token.
pub(crate) const MAX_PROBS: u64 = 1000;
/// The most tokens to which a request may give a bias.
const MAX_BIASES: usize = 65_536;
/// The most strings in a list of a request: stop strings, breakers.
pub(crate) const MAX_STRINGS: usize = 256;
/// The most tokens that a sampler looks back at.
const MAX_LAST_N: i64 = 1 << 16;
/// The seed that stands for a random one.
const RANDOM: u32 = u32::MAX;

/// A sampler that a request can put into its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SamplerKind {
    /// Penalties for repeated tokens.
    Penalties,
    /// Penalties for repeated sequences.
    Dry,
    /// A cut by standard deviations.
    TopNSigma,
    /// A cut by number.
    TopK,
    /// A cut by typicality.
    TypicalP,
    /// A cut by probability mass.
    TopP,
    /// A cut by probability beside the likeliest.
    MinP,
    /// Now and then, a cut of the likeliest.
    Xtc,
    /// The temperature.
    Temperature,
}

use SamplerKind::{Dry as DryKind, MinP as MinPKind, Temperature, TopK as TopKKind, TopP as TopPKind};

/// The names of samplers, their letters, and other names that clients use.
const KINDS: [(SamplerKind, &str, char, &str); 9] = [
    (SamplerKind::Penalties, "penalties", 'e', "repetition_penalty"),
    (DryKind, "dry", 'd', "dry"),
    (SamplerKind::TopNSigma, "top_n_sigma", 's', "top-n-sigma"),
    (TopKKind, "top_k", 'k', "top-k"),
    (SamplerKind::TypicalP, "typ_p", 'y', "typical_p"),
    (TopPKind, "top_p", 'p', "nucleus"),
    (MinPKind, "min_p", 'm', "min-p"),
    (SamplerKind::Xtc, "xtc", 'x', "xtc"),
    (Temperature, "temperature", 't', "temp"),
];

impl SamplerKind {
    /// Return the name in llama-server's interface.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, ..)| name)
    }

    fn of_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known, _, other)| *known == name || *other == name).map(|(kind, ..)| *kind)
    }

    fn of_letter(letter: char) -> Option<Self> {
        KINDS.iter().find(|(_, _, known, _)| *known == letter).map(|(kind, ..)| *kind)
    }

    /// Read the order of samplers from a list of names or a text of letters.
    ///
    /// # Errors
    /// The name that is unknown.
    pub fn read_order(value: &Value) -> Result<Vec<Self>, String> {
        let unknown = |name: &dyn std::fmt::Display| format!("{name} is no sampler");
        match value {
            Value::String(letters) => letters
                .chars()
                .map(|letter| Self::of_letter(letter).ok_or_else(|| unknown(&letter)))
                .collect(),
            Value::Array(names) => {
                let kind = |name: &Value| name.as_str().and_then(Self::of_name).ok_or_else(|| unknown(name));
                names.iter().take(MAX_STRINGS).map(kind).collect()
            }
            other => Err(unknown(other)),
        }
    }
}

/// The samplers of a request. Names and defaults are llama-server's.
///
/// # Example
/// ```
/// use backstitch_server::params::Sampling;
///
/// let sampling = Sampling { temp: 0.0, ..Sampling::default() };
/// assert_eq!(sampling.to_json()["top_k"], 40);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// The seed; `u32::MAX` for a random one.
    pub seed: u32,
    /// The temperature; 0 takes the likeliest token.
    pub temp: f32,
    /// The range of the temperature.
    pub dynatemp_range: f32,
    /// The exponent of the entropy in the temperature.
    pub dynatemp_exponent: f32,
    /// The number of candidates kept; 0 for all.
    pub top_k: u32,
    /// The probability mass kept.
    pub top_p: f32,
    /// The relative threshold of candidates.
    pub min_p: f32,
    /// The number of standard deviations kept; off if not above 0.
    pub top_n_sigma: f32,
    /// The probability of dropping the likeliest candidates.
    pub xtc_probability: f32,
    /// The probability from which candidates can be dropped.
    pub xtc_threshold: f32,
    /// The typical probability mass kept.
    pub typical_p: f32,
    /// The number of recent tokens that penalties look at; -1 for the whole context.
    pub repeat_last_n: i64,
    /// The factor for repeated tokens.
    pub repeat_penalty: f32,
    /// The penalty for tokens that occurred.
    pub presence_penalty: f32,
    /// The penalty for each occurrence.
    pub frequency_penalty: f32,
    /// The penalty for repeated sequences.
    pub dry_multiplier: f32,
    /// The growth of that penalty.
    pub dry_base: f32,
    /// The length of sequences without that penalty.
    pub dry_allowed_length: u32,
    /// The number of recent tokens searched for sequences; -1 for the whole context.
    pub dry_penalty_last_n: i64,
    /// Texts across which there is no repetition.
    pub dry_sequence_breakers: Vec<String>,
    /// Added to logits.
    pub logit_bias: Vec<(Token, f32)>,
    /// The end of the text is never chosen.
    pub ignore_eos: bool,
    /// The order of the samplers.
    pub samplers: Vec<SamplerKind>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            seed: RANDOM,
            temp: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            typical_p: 1.0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: -1,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            logit_bias: Vec::new(),
            ignore_eos: false,
            samplers: KINDS.iter().map(|(kind, ..)| *kind).collect(),
        }
    }
}

/// Set `target` if `value` is there.
fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl Sampling {
    /// Read the samplers of a request; what it does not say is as the server was started.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) with the field that is wrong.
    pub fn read(fields: Fields<'_>, app: &App) -> Result<Self, ApiError> {
        let mut sampling = app.params().sampling.clone();
        sampling.read_numbers(fields)?;
        sampling.read_windows(fields)?;
        set(&mut sampling.ignore_eos, fields.bool("ignore_eos")?);
        if fields.i64("mirostat")?.is_some_and(|version| version != 0) {
            return Err(ApiError::not_supported("mirostat is not supported: leave \"mirostat\" out"));
        }
        if let Some(value) = fields.get("logit_bias") {
            sampling.logit_bias = read_biases(value, app.vocab())?;
        }
        if let Some(value) = fields.get("samplers") {
            sampling.samplers = SamplerKind::read_order(value)
                .map_err(|text| ApiError::invalid(format!("\"samplers\": {text}")))?;
        }
        if let Some(texts) = fields.strings("dry_sequence_breakers")? {
            if texts.is_empty() || texts.len() > MAX_STRINGS {
                return Err(ApiError::field("dry_sequence_breakers", "a list of 1 to 256 strings"));
            }
            sampling.dry_sequence_breakers = texts.into_iter().map(str::to_owned).collect();
        }
        Ok(sampling)
    }

    fn read_numbers(&mut self, fields: Fields<'_>) -> Result<(), ApiError> {
        let within = |name, low: f32, high: f32| {
            fields.f32(name).map(|value| value.map(|value| value.clamp(low, high)))
        };
        set(&mut self.temp, within("temperature", 0.0, f32::MAX)?);
        set(&mut self.dynatemp_range, within("dynatemp_range", 0.0, f32::MAX)?);
        set(&mut self.dynatemp_exponent, fields.f32("dynatemp_exponent")?);
        set(&mut self.top_p, within("top_p", 0.0, 1.0)?);
        set(&mut self.min_p, within("min_p", 0.0, 1.0)?);
        set(&mut self.top_n_sigma, fields.f32("top_n_sigma")?);
        set(&mut self.xtc_probability, within("xtc_probability", 0.0, 1.0)?);
        set(&mut self.xtc_threshold, within("xtc_threshold", 0.0, 1.0)?);
        set(&mut self.typical_p, within("typical_p", 0.0, 1.0)?);
        set(&mut self.repeat_penalty, within("repeat_penalty", f32::MIN_POSITIVE, f32::MAX)?);
        set(&mut self.presence_penalty, fields.f32("presence_penalty")?);
        set(&mut self.frequency_penalty, fields.f32("frequency_penalty")?);
        set(&mut self.dry_multiplier, within("dry_multiplier", 0.0, f32::MAX)?);
        // llama-server keeps its default for a base that would shrink the penalty.
        set(&mut self.dry_base, fields.f32("dry_base")?.filter(|&base| base >= 1.0));
        let top_k = fields.i64("top_k")?.map(|k| u32::try_from(k.max(0)).unwrap_or(u32::MAX));
        set(&mut self.top_k, top_k);
        // Seeds have 32 bits, and every negative one is random.
        let seed = fields.i64("seed")?.map(|seed| if seed < 0 { RANDOM } else { seed as u32 });
        set(&mut self.seed, seed);
        Ok(())
    }

    fn read_windows(&mut self, fields: Fields<'_>) -> Result<(), ApiError> {
        for (name, target) in
            [("repeat_last_n", &mut self.repeat_last_n), ("dry_penalty_last_n", &mut self.dry_penalty_last_n)]
        {
            match fields.i64(name)? {
                Some(n) if !(-1..=i64::from(i32::MAX)).contains(&n) => {
                    return Err(ApiError::field(name, "a whole number, -1 or above"));
                }
                n => set(target, n),
            }
        }
        let length = fields.u64("dry_allowed_length")?;
        set(&mut self.dry_allowed_length, length.map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// Return the seed of the random numbers: the one asked for, or a random one.
    fn actual_seed(&self) -> u64 {
        match self.seed {
            RANDOM => RandomState::new().hash_one(()) & u64::from(RANDOM),
            seed => u64::from(seed),
        }
    }

    /// Return the chain of samplers, in a context of `n_ctx` tokens. The `index` tells several
    /// answers to one prompt apart: each has other random numbers. A grammar comes first.
    pub fn chain(&self, vocab: &Vocab, n_ctx: u32, index: usize, grammar: Option<GrammarSampler>) -> Chain {
        let look_back = |n: i64| match n {
            -1 => i64::from(n_ctx).min(MAX_LAST_N) as usize,
            n => n.clamp(0, MAX_LAST_N.min(i64::from(n_ctx))) as usize,
        };
        let seed = self.actual_seed().wrapping_add(index as u64);
        let mut builder = Chain::builder(vocab.n_vocab()).seed(seed).last_n(look_back(self.repeat_last_n));
        if let Some(grammar) = grammar {
            builder = builder.with(grammar);
        }
        let mut biases = self.logit_bias.clone();
        if self.ignore_eos {
            biases.extend(vocab.eog().iter().map(|&token| (token, f32::NEG_INFINITY)));
        }
        if !biases.is_empty() {
            builder = builder.with(LogitBias(biases));
        }
        // With a temperature of zero only what changes the order of candidates matters.
        let is_greedy = self.temp <= 0.0;
        for kind in &self.samplers {
            builder = self.with(builder, *kind, is_greedy, vocab, look_back(self.dry_penalty_last_n));
        }
        if is_greedy { builder.with(Greedy).build() } else { builder.build() }
    }

    /// Add a sampler to a chain, unless it is off.
    fn with(
        &self,
        builder: Builder,
        kind: SamplerKind,
        is_greedy: bool,
        vocab: &Vocab,
        dry_last_n: usize,
    ) -> Builder {
        match kind {
            SamplerKind::Penalties => {
                let penalties = Penalties {
                    repeat: self.repeat_penalty,
                    frequency: self.frequency_penalty,
                    presence: self.presence_penalty,
                };
                let is_off =
                    penalties.repeat == 1.0 && penalties.frequency == 0.0 && penalties.presence == 0.0;
                if is_off { builder } else { builder.with(penalties) }
            }
            SamplerKind::Dry if self.dry_multiplier > 0.0 && dry_last_n > 0 => {
                let texts: Vec<&str> = self.dry_sequence_breakers.iter().map(String::as_str).collect();
                let params = DryParams {
                    multiplier: self.dry_multiplier,
                    base: self.dry_base,
                    allowed_length: self.dry_allowed_length as usize,
                    last_n: dry_last_n,
                };
                builder.with(Dry::new(&params, &DryBreakers::of_texts(vocab, &texts)))
            }
            SamplerKind::Dry => builder,
            _ if is_greedy => builder,
            SamplerKind::TopNSigma if self.top_n_sigma > 0.0 => builder.with(TopNSigma(self.top_n_sigma)),
            SamplerKind::TopK if self.top_k > 0 => builder.with(TopK(self.top_k as usize)),
            SamplerKind::TypicalP if self.typical_p < 1.0 => builder.with(Typical(self.typical_p)),
            SamplerKind::TopP if self.top_p < 1.0 => builder.with(TopP(self.top_p)),
            SamplerKind::MinP if self.min_p > 0.0 => builder.with(MinP(self.min_p)),
            SamplerKind::Xtc if self.xtc_probability > 0.0 => {
                builder.with(Xtc { probability: self.xtc_probability, threshold: self.xtc_threshold })
            }
            SamplerKind::Temperature => builder.with(DynamicTemperature {
                temp: self.temp,
                range: self.dynatemp_range,
                exponent: self.dynatemp_exponent,
            }),
            _ => builder,
        }
    }

    /// Return the settings as llama-server tells them.
    pub fn to_json(&self) -> Value {
        let names: Vec<_> = self.samplers.iter().map(|kind| kind.name()).collect();
        let biases = self.logit_bias.iter().map(|(token, bias)| json!({"token": token.0, "bias": bias}));
        json!({
            "seed": self.seed,
            "temperature": self.temp,
            "dynatemp_range": self.dynatemp_range,
            "dynatemp_exponent": self.dynatemp_exponent,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "top_n_sigma": self.top_n_sigma,
            "xtc_probability": self.xtc_probability,
            "xtc_threshold": self.xtc_threshold,
            "typical_p": self.typical_p,
            "repeat_last_n": self.repeat_last_n,
            "repeat_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "dry_multiplier": self.dry_multiplier,
            "dry_base": self.dry_base,
            "dry_allowed_length": self.dry_allowed_length,
            "dry_penalty_last_n": self.dry_penalty_last_n,
            "dry_sequence_breakers": self.dry_sequence_breakers,
            "mirostat": 0,
            "mirostat_tau": 5.0,
            "mirostat_eta": 0.1,
            "adaptive_target": -1.0,
            "adaptive_decay": 0.9,
            "logit_bias": biases.collect::<Vec<_>>(),
            "ignore_eos": self.ignore_eos,
            "samplers": names,
        })
    }
}

/// Read biases of tokens: a list of pairs, or an object. A token is given by its number or by text,
/// all of whose tokens get the bias; `false` bans a token. Tokens that do not exist and biases that
/// are nothing of this are ignored, as llama-server does.
fn read_biases(value: &Value, vocab: &Vocab) -> Result<Vec<(Token, f32)>, ApiError> {
    let mut biases = Vec::new();
    let mut add = |token: &Value, bias: &Value| {
        let bias = match bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            Value::Number(number) => number.as_f64().unwrap_or(0.0) as f32,
            _ => return,
        };
        let number = match token {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => return,
        };
        match (number, token) {
            (Some(id), _) if id < vocab.n_vocab() as u64 => biases.push((Token(id as u32), bias)),
            (None, Value::String(text)) => {
                let mut tokens = Vec::new();
                vocab.tokenize(text, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
                biases.extend(tokens.into_iter().map(|token| (token, bias)));
            }
            _ => {}
        }
    };
    match value {
        Value::Array(pairs) => {
            for pair in pairs {
                if let Some([token, bias]) = pair.as_array().map(Vec::as_slice) {
                    add(token, bias);
                }
            }
        }
        Value::Object(map) => map.iter().for_each(|(token, bias)| add(&Value::String(token.clone()), bias)),
        _ => return Err(ApiError::field("logit_bias", "an object, or an array of pairs")),
    }
    match biases.len() {
        n if n > MAX_BIASES => Err(ApiError::field("logit_bias", "for at most 65536 tokens")),
        _ => Ok(biases),
    }
}
