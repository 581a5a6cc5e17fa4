//! Options that choose tokens: samplers, and speculative decoding.
//!
//! The defaults of the samplers are those of the library; a test holds them together.

use super::numbers::{above_zero, at_least_zero, bias, count, decay, finite, probability};
use backstitch_models::sampler::{self, Kind, MirostatVersion};
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;

/// Options of the samplers. All of them are applied to every token, those that are off excepted.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature: higher is more surprising; 0 always takes the likeliest token.
    #[arg(long = "temp", alias = "temperature", value_name = "X", default_value_t = 0.8, value_parser = at_least_zero)]
    pub temp: f32,
    /// Choose among the N likeliest tokens; 0 and -1 are off.
    #[arg(long, value_name = "N", default_value_t = 40, allow_negative_numbers = true, value_parser = count)]
    pub top_k: u32,
    /// Choose among the likeliest tokens that together have this probability; 1 is off.
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = probability)]
    pub top_p: f32,
    /// Choose among tokens at least P times as likely as the likeliest; 0 is off.
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = probability)]
    pub min_p: f32,
    /// Choose among tokens about as surprising as expected, up to this probability; 1 is off.
    #[arg(long = "typical", alias = "typical-p", value_name = "P", default_value_t = 1.0, value_parser = probability)]
    pub typical_p: f32,
    /// Tokens that the penalties look back; 0 is off, -1 is the whole context.
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub repeat_last_n: i64,
    /// Make tokens that occurred less likely, by this factor of their logits; 1 is off.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = above_zero)]
    pub repeat_penalty: f32,
    /// Subtract this from the logit of every token that occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub presence_penalty: f32,
    /// Subtract this from a token's logit once for each time that it occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub frequency_penalty: f32,
    /// Penalise tokens that would extend a repetition (DRY), by this times --dry-base for each
    /// token beyond the allowed length; 0 is off.
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = at_least_zero)]
    pub dry_multiplier: f32,
    /// Growth of the DRY penalty with each further token.
    #[arg(long, value_name = "X", default_value_t = 1.75, value_parser = above_zero)]
    pub dry_base: f32,
    /// Longest repetition that DRY allows, in tokens.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub dry_allowed_length: u32,
    /// Tokens that DRY looks back; 0 is off, -1 is the whole context.
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub dry_penalty_last_n: i64,
    /// Text across which DRY sees no repetition; may be repeated; "none" for no such text.
    #[arg(long, value_name = "TEXT", default_values = ["\n", ":", "\"", "*"])]
    pub dry_sequence_breaker: Vec<String>,
    /// Choose among tokens at most N standard deviations less likely than the likeliest; 0 and -1
    /// are off.
    #[arg(long = "top-nsigma", alias = "top-n-sigma", value_name = "N", default_value_t = 0.0,
          allow_negative_numbers = true, value_parser = finite)]
    pub top_n_sigma: f32,
    /// Leave out the likeliest tokens (XTC) with this probability; 0 is off.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub xtc_probability: f32,
    /// Least probability of a token that XTC leaves out; above 0.5 is off.
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = probability)]
    pub xtc_threshold: f32,
    /// Vary the temperature by up to this much, with how certain the model is; 0 is off.
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = at_least_zero)]
    pub dynatemp_range: f32,
    /// Exponent with which the varied temperature grows with uncertainty.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = finite)]
    pub dynatemp_exp: f32,
    /// Hold the surprise of the tokens at --mirostat-ent, with version 1 or 2; 0 is off. Of the
    /// other samplers, the temperature and the logit biases remain.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u8).range(0..=2))]
    pub mirostat: u8,
    /// Surprise that mirostat aims at, in bits.
    #[arg(long, value_name = "X", default_value_t = 5.0, value_parser = at_least_zero)]
    pub mirostat_ent: f32,
    /// Rate at which mirostat learns.
    #[arg(long, value_name = "X", default_value_t = 0.1, value_parser = at_least_zero)]
    pub mirostat_lr: f32,
    /// Prefer tokens near this probability (adaptive-p); below 0 is off.
    #[arg(long, value_name = "P", default_value_t = -1.0, allow_negative_numbers = true, value_parser = finite)]
    pub adaptive_target: f32,
    /// Share of its memory that adaptive-p keeps with each token, from 0 to 0.99.
    #[arg(long, value_name = "X", default_value_t = 0.9, value_parser = decay)]
    pub adaptive_decay: f32,
    /// Samplers in their order: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc,
    /// temperature (which is the default), infill, adaptive_p.
    #[arg(long, value_name = "NAME;NAME…", value_parser = by_names, overrides_with = "sampler_seq")]
    pub samplers: Option<Order>,
    /// Samplers in their order, by their letters; the default is edskypmxt.
    #[arg(long, alias = "sampling-seq", value_name = "LETTERS", value_parser = by_letters,
          overrides_with = "samplers")]
    pub sampler_seq: Option<Order>,
    /// Random numbers: "llama" draws the tokens that llama.cpp draws with the same seed [default:
    /// backstitch; llama for serve].
    #[arg(long, value_name = "NAME")]
    pub generator: Option<Generator>,
    /// Add to the logit of a token: 15043+1, 15043-1.5 or 2-inf; may be repeated.
    #[arg(short = 'l', long, value_name = "TOKEN±X", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers: the same seed gives the same text; -1 picks one at random.
    #[arg(short = 's', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..))]
    pub seed: i64,
}

/// Samplers in their order.
#[derive(Debug, Clone)]
pub struct Order(Vec<Kind>);

/// Random numbers.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Generator {
    /// Those of this program.
    Backstitch,
    /// Those of llama.cpp.
    Llama,
}

impl Generator {
    /// Return the library's name for them.
    pub fn of_library(self) -> sampler::Generator {
        match self {
            Self::Backstitch => sampler::Generator::Backstitch,
            Self::Llama => sampler::Generator::Llama,
        }
    }
}

impl SamplingArgs {
    /// Return the samplers in their order. A target alone adds adaptive-p.
    pub fn order(&self) -> Vec<Kind> {
        match self.samplers.as_ref().or(self.sampler_seq.as_ref()) {
            Some(Order(order)) => order.clone(),
            None if self.adaptive_target >= 0.0 => [&Kind::USUAL[..], &[Kind::AdaptiveP]].concat(),
            None => Kind::USUAL.to_vec(),
        }
    }

    /// Return the version of mirostat; `None` if it is off.
    pub fn mirostat(&self) -> Option<MirostatVersion> {
        match self.mirostat {
            0 => None,
            1 => Some(MirostatVersion::One),
            _ => Some(MirostatVersion::Two),
        }
    }
}

/// Parse names of samplers with semicolons between them.
fn by_names(text: &str) -> Result<Order, String> {
    let names = text.split(';').map(str::trim).filter(|name| !name.is_empty());
    let kind = |name| Kind::from_name(name).ok_or_else(|| format!("no sampler is named {name}"));
    names.map(kind).collect::<Result<_, _>>().map(Order)
}

/// Parse letters of samplers.
fn by_letters(text: &str) -> Result<Order, String> {
    let kind =
        |letter| Kind::from_letter(letter).ok_or_else(|| format!("no sampler has the letter {letter}"));
    text.chars().map(kind).collect::<Result<_, _>>().map(Order)
}

/// Options of speculative decoding. They change how fast the text comes, never the text.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub struct SpeculationArgs {
    /// Smaller model with the same vocabulary; it drafts tokens, which the model checks in one
    /// batch [also: -md].
    #[arg(long, alias = "model-draft", value_name = "FILE", conflicts_with = "lookup")]
    pub draft_model: Option<PathBuf>,
    /// Prompt lookup: draft the tokens that followed the last ones before; for code, quotations,
    /// summaries.
    #[arg(long)]
    pub lookup: bool,
    /// Most tokens drafted at once; fewer are drafted while they are not accepted.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(1..=32))]
    pub draft_max: u16,
}
