//! Options of `backstitch run` and `backstitch chat`.

use super::sampling::SpeculationArgs;
use super::{CacheArgs, ContextArgs, FileArgs, ModelArgs, PromptArgs, ReportArgs, SamplingArgs};
use clap::{Args, value_parser};

/// `backstitch run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Tokens to generate; -1 and -2 go on until the model ends the text or the context is full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = value_parser!(i64).range(-2..))]
    pub n_predict: i64,
    /// Print only what the model adds.
    #[arg(long)]
    pub no_display_prompt: bool,
    /// Go on after the model has ended the text.
    #[arg(long)]
    pub ignore_eos: bool,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub file: FileArgs,
}

/// `backstitch chat`
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Instructions for the model, before the first message [also: -sys].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system_prompt: Option<String>,
    /// The first message; the others are read from standard input.
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Tokens an answer may have; -1 and -2 go on until the model ends it or the context is full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = value_parser!(i64).range(-2..))]
    pub n_predict: i64,
    /// Tell about the model's memory, the machine and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}
