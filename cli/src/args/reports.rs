//! Options of the commands that look at models, texts and memory.

use super::list::{List, count_list, list, positive_list};
use super::numbers::{at_least_zero, count};
use super::{ContextArgs, EvaluationArgs, ModelArgs, PromptArgs};
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Options for the report about a measured run.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReportArgs {
    /// Tell about the model, its memory, the machine and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `backstitch tokenize`
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Print the numbers only, on one line.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Leave out the tokens that the model wants before and after a text.
    #[arg(long)]
    pub no_bos: bool,
    /// Take special tokens in the text as ordinary text.
    #[arg(long)]
    pub no_parse_special: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
}

/// `backstitch inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file; without it, the model inside the program.
    #[arg(value_name = "FILE", conflicts_with = "model")]
    pub path: Option<PathBuf>,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `backstitch pack`
#[derive(Debug, Args)]
pub struct PackArgs {
    /// GGUF file, or one part of a split model.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The new file; a packed model that is there is replaced once the new one is whole.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Threads, capped at 512; 0 and -1 are one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `backstitch graph`
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Print for Graphviz.
    #[arg(long)]
    pub dot: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `backstitch bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Tokens of the prompt; several, with commas between, are measured one after the other.
    #[arg(short = 'p', long, value_name = "N,…", default_value = "512", value_parser = positive_list)]
    pub n_prompt: List,
    /// Tokens to generate; several with commas.
    #[arg(short = 'n', long, value_name = "N,…", default_value = "64", value_parser = positive_list)]
    pub n_gen: List,
    /// Tokens in the context when the measuring begins; several with commas.
    #[arg(short = 'd', long, value_name = "N,…", default_value = "0", value_parser = list)]
    pub depth: List,
    /// Threads, capped at 512; 0 and -1 are one for each core; several with commas.
    #[arg(short = 't', long = "threads", value_name = "N,…", default_value = "0", allow_negative_numbers = true,
          value_parser = count_list)]
    pub n_threads: List,
    /// Sequences that generate together.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    pub seqs: u32,
    /// Repetitions, after one run to warm up: the table has their median, lowest and highest speed.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Tell about memory, kernels, threads, processor time and huge pages on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON: one line for each combination of threads, depth, prompt and generation.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub evaluation: EvaluationArgs,
}

/// `backstitch timeline`
#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Tokens to generate behind the text [default: 0; without text and model, 600].
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N")]
    pub n_predict: Option<u32>,
    /// Fork the sequence N times at its end, each with another of the likeliest tokens.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u8).range(..=64))]
    pub forks: u8,
    /// Pin a checkpoint at a position, so that it is restored at once; may be repeated.
    #[arg(long, value_name = "POS")]
    pub pin: Vec<u32>,
    /// Roll back to a position and tell what that took; may be repeated.
    #[arg(long, value_name = "POS")]
    pub rollback: Vec<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Draw to an SVG file as well; "-" is standard output, instead of text.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

/// `backstitch verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Conformance files (.txt, .tsv, .json), or folders that hold some.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Largest difference of a logit that passes.
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = at_least_zero)]
    pub tolerance: f32,
    /// The model that files name but that does not lie beside them.
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Threads, capped at 512; 0 and -1 are one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Fail as well if a case is not supported.
    #[arg(long)]
    pub strict: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
