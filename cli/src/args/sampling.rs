//! Options that choose tokens: samplers, and speculative decoding.
//!
//! The defaults of the samplers are those of the library; a test holds them together.

use super::numbers::{above_zero, at_least_zero, bias, count, finite, probability};
use clap::{Args, value_parser};
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
    /// Penalise tokens that would extend a repetition (DRY), by this times --dry-base for each token
    /// beyond the allowed length; 0 is off.
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
    /// How the varied temperature grows with uncertainty: its exponent.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = finite)]
    pub dynatemp_exp: f32,
    /// Add to the logit of a token: 15043+1, 15043-1.5 or 2-inf; may be repeated.
    #[arg(short = 'l', long, value_name = "TOKEN±X", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers: the same seed gives the same text; -1 picks one at random.
    #[arg(short = 's', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..))]
    pub seed: i64,
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
