//! The samplers of a request, by llama-server's names.

use super::fields::Fields;
use crate::http::{ApiError, App};
use backstitch_models::Token;
use backstitch_models::grammar::GrammarSampler;
use backstitch_models::sampler::{
    Chain, DryBreakers, DryParams, Generator, Infill, Kind, MirostatVersion, Settings,
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
/// The longest of these, in bytes.
pub(crate) const MAX_STRING: usize = 4096;
/// The most tokens that a sampler looks back at.
const MAX_LAST_N: i64 = 1 << 16;
/// The most samplers in an order.
const MAX_ORDER: usize = 64;
/// The seed that stands for a random one.
const RANDOM: u32 = u32::MAX;

/// Read the order of samplers from a list of names or a text of letters. Unknown ones are skipped,
/// as llama-server does: presets name samplers that are no more. If none is known, the order is a
/// mistake, because no sampler at all would be left.
fn read_order(value: &Value) -> Result<Vec<Kind>, String> {
    let (n, order): (usize, Vec<Kind>) = match value {
        Value::String(letters) => {
            (letters.len(), letters.chars().take(MAX_ORDER).filter_map(Kind::from_letter).collect())
        }
        Value::Array(names) if names.iter().all(Value::is_string) => {
            let known = names.iter().take(MAX_ORDER).filter_map(|name| Kind::from_name(name.as_str()?));
            (names.len(), known.collect())
        }
        other => return Err(format!("{other} is no sampler")),
    };
    match order.is_empty() && n > 0 {
        true => Err(format!("{value} names no sampler")),
        false => Ok(order),
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
    pub samplers: Vec<Kind>,
    /// The version of mirostat; 0 is off.
    pub mirostat: u8,
    /// The surprise that tokens should have.
    pub mirostat_tau: f32,
    /// The rate at which mirostat learns.
    pub mirostat_eta: f32,
    /// The target of adaptive-p; below 0 is off.
    pub adaptive_target: f32,
    /// The decay of adaptive-p.
    pub adaptive_decay: f32,
    /// The least number of candidates that samplers keep.
    pub min_keep: usize,
    /// The random numbers: by default llama.cpp's, which its clients expect.
    pub generator: Generator,
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
            samplers: Kind::USUAL.to_vec(),
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            min_keep: 0,
            generator: Generator::Llama,
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
        set(&mut sampling.mirostat, fields.i64("mirostat")?.map(|version| version.clamp(0, 2) as u8));
        if let Some(value) = fields.get("logit_bias") {
            sampling.logit_bias = read_biases(value, app.vocab())?;
        }
        if sampling.ignore_eos {
            let banned = app.vocab().eog().iter().map(|&token| (token, f32::NEG_INFINITY));
            sampling.logit_bias.extend(banned);
        }
        if let Some(value) = fields.get("samplers") {
            let wrong = |text| ApiError::invalid(format!("\"samplers\": {text}")).about("samplers");
            sampling.samplers = read_order(value).map_err(wrong)?;
        }
        if let Some(texts) = fields.strings("dry_sequence_breakers")? {
            let is_long = texts.iter().any(|text| text.len() > MAX_STRING);
            if texts.is_empty() || texts.len() > MAX_STRINGS || is_long {
                let wanted = "a list of 1 to 256 strings of at most 4096 bytes";
                return Err(ApiError::field("dry_sequence_breakers", wanted));
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
        set(&mut self.mirostat_tau, fields.f32("mirostat_tau")?);
        set(&mut self.mirostat_eta, fields.f32("mirostat_eta")?);
        set(&mut self.adaptive_target, within("adaptive_target", f32::MIN, 1.0)?);
        set(&mut self.adaptive_decay, within("adaptive_decay", 0.0, 0.99)?);
        let min_keep = fields.u64("min_keep")?;
        set(&mut self.min_keep, min_keep.map(|n| usize::try_from(n).unwrap_or(usize::MAX)));
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

    /// Return the chain of samplers behind the grammar, with the [`Sampling::settings`] of this.
    /// `index` tells several answers to one prompt apart: each has other random numbers.
    pub(super) fn chain(
        &self,
        settings: &Settings,
        n_vocab: usize,
        index: usize,
        grammar: Option<GrammarSampler>,
    ) -> Chain {
        let seed = self.actual_seed().wrapping_add(index as u64);
        let builder = Chain::builder(n_vocab);
        let builder = match grammar {
            Some(grammar) => builder.with(grammar),
            None => builder,
        };
        builder.settings(&settings.clone().seed(seed)).build()
    }

    /// Return the settings of the library's samplers, in a context of `n_ctx` tokens. To make some
    /// of them reads the whole vocabulary.
    pub(super) fn settings(&self, vocab: &Vocab, n_ctx: u32) -> Settings {
        let most = MAX_LAST_N.min(i64::from(n_ctx));
        let look_back = |n: i64| if n < 0 { most as usize } else { n.min(most) as usize };
        let dry = DryParams {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length as usize,
            last_n: look_back(self.dry_penalty_last_n),
        };
        let mut settings = Settings::default()
            .generator(self.generator)
            .order(self.samplers.clone())
            .min_keep(self.min_keep)
            .temp(self.temp)
            .top_k(self.top_k as usize)
            .top_p(self.top_p)
            .min_p(self.min_p)
            .typical_p(self.typical_p)
            .repeat_last_n(look_back(self.repeat_last_n))
            .repeat_penalty(self.repeat_penalty)
            .frequency_penalty(self.frequency_penalty)
            .presence_penalty(self.presence_penalty)
            .dry(dry)
            .top_n_sigma(self.top_n_sigma.max(0.0))
            .xtc_probability(self.xtc_probability)
            .xtc_threshold(self.xtc_threshold)
            .dynamic_temp_range(self.dynatemp_range)
            .dynamic_temp_exponent(self.dynatemp_exponent)
            .mirostat_tau(self.mirostat_tau)
            .mirostat_eta(self.mirostat_eta)
            .adaptive_target(self.adaptive_target)
            .adaptive_decay(self.adaptive_decay)
            .logit_bias(self.logit_bias.clone())
            .suppress(vocab);
        settings.mirostat = match self.mirostat {
            1 => Some(MirostatVersion::One),
            2 => Some(MirostatVersion::Two),
            _ => None,
        };
        // These two read the whole vocabulary, so they are made only if they are needed.
        if self.dry_multiplier != 0.0 && self.samplers.contains(&Kind::Dry) {
            let texts: Vec<&str> = self.dry_sequence_breakers.iter().map(String::as_str).collect();
            settings.dry_breakers = DryBreakers::of_texts(vocab, &texts);
        }
        if self.samplers.contains(&Kind::Infill) {
            settings.infill = Some(Infill::new(vocab));
        }
        settings
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
            "mirostat": self.mirostat,
            "mirostat_tau": self.mirostat_tau,
            "mirostat_eta": self.mirostat_eta,
            "adaptive_target": self.adaptive_target,
            "adaptive_decay": self.adaptive_decay,
            "min_keep": self.min_keep,
            "logit_bias": biases.collect::<Vec<_>>(),
            "ignore_eos": self.ignore_eos,
            "samplers": names,
        })
    }
}

/// Read biases of tokens: a list of pairs, or an object, whose keys may be numbers. A token is
/// given by its number or by text, all of whose tokens get the bias; `false` bans a token.
fn read_biases(value: &Value, vocab: &Vocab) -> Result<Vec<(Token, f32)>, ApiError> {
    let mut biases = Biases { vocab, list: Vec::new() };
    match value {
        Value::Array(pairs) => {
            for (i, pair) in pairs.iter().enumerate() {
                let path = |index: &str| format!("logit_bias[{i}]{index}");
                let Some([token, bias]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(ApiError::field(&path(""), "a pair of a token and a bias"));
                };
                let bias = read_bias(bias, || path("[1]"))?;
                match token {
                    Value::String(text) => biases.add_text(text, bias),
                    token => biases.add(token.as_u64(), bias, || path("[0]"))?,
                }
            }
        }
        Value::Object(map) => {
            for (token, bias) in map.iter().filter(|(_, bias)| !bias.is_null()) {
                let path = || format!("logit_bias.{token}");
                let bias = read_bias(bias, path)?;
                match token.parse() {
                    Ok(id) => biases.add(Some(id), bias, path)?,
                    Err(_) => biases.add_text(token, bias),
                }
            }
        }
        _ => return Err(ApiError::field("logit_bias", "an object, or an array of pairs")),
    }
    match biases.list.len() {
        n if n > MAX_BIASES => Err(ApiError::field("logit_bias", "for at most 65536 tokens")),
        _ => Ok(biases.list),
    }
}

/// Read the bias that stands at `path`.
fn read_bias(value: &Value, path: impl Fn() -> String) -> Result<f32, ApiError> {
    match (value, value.as_f64()) {
        (Value::Bool(false), _) => Ok(f32::NEG_INFINITY),
        (_, Some(bias)) => Ok(bias as f32),
        _ => Err(ApiError::field(&path(), "a number, or false, which bans the token")),
    }
}

/// Biases that are being read.
struct Biases<'v> {
    vocab: &'v Vocab,
    list: Vec<(Token, f32)>,
}

impl Biases<'_> {
    /// Add the bias of the token with a number that stands at `path`.
    fn add(&mut self, id: Option<u64>, bias: f32, path: impl Fn() -> String) -> Result<(), ApiError> {
        let n_vocab = self.vocab.n_vocab() as u64;
        let Some(id) = id.filter(|&id| id < n_vocab) else {
            let wanted = format!("a token from 0 to {}, or a text", n_vocab.saturating_sub(1));
            return Err(ApiError::field(&path(), &wanted));
        };
        self.list.push((Token(id as u32), bias));
        Ok(())
    }

    /// Add the bias of all tokens of a text.
    fn add_text(&mut self, text: &str, bias: f32) {
        let mut tokens = Vec::new();
        self.vocab.tokenize(text, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
        self.list.extend(tokens.into_iter().map(|token| (token, bias)));
    }
}
