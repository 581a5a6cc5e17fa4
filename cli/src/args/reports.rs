//! Options of the commands that report on models, texts and memory: `tokenize`, `inspect`, `pack`,
//! `graph`, `bench`, `timeline` and `verify`.

use super::adapters::AdapterArgs;
use super::list::{List, count_list, list, positive_list};
use super::numbers::{at_least_zero, count};
use super::{ContextArgs, EvaluationArgs, ModelArgs, PromptArgs};
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Options of the report about a run.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReportArgs {
    /// Report the model, its memory, the machine and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch tokenize`.
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Print only the numbers of the tokens, on one line.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Leave out the tokens that the model expects before and after a text.
    #[arg(long)]
    pub no_bos: bool,
    /// Treat special tokens in the text as ordinary text.
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

/// Options of `backstitch inspect`. The file may also be given with `-m`, as for other commands.
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

/// Options of `backstitch pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// GGUF file, or one part of a split model.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The new file. It replaces a packed model of that name once it is complete.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch graph`.
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Print the graph for Graphviz.
    #[arg(long)]
    pub dot: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Options of `backstitch bench`. Every combination of depth and threads is measured with every
/// prompt and every generation.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Tokens of the prompt; several numbers, separated by commas, are measured in turn.
    #[arg(short = 'p', long, value_name = "N,…", default_value = "512", value_parser = positive_list)]
    pub n_prompt: List,
    /// Tokens to generate; one number or several.
    #[arg(short = 'n', long, value_name = "N,…", default_value = "64", value_parser = positive_list)]
    pub n_gen: List,
    /// Tokens in the context before each measurement; one number or several.
    #[arg(short = 'd', long, value_name = "N,…", default_value = "0", value_parser = list)]
    pub depth: List,
    /// Number of threads, capped at 512; 0 and -1 mean one for each core; one number or several.
    #[arg(short = 't', long = "threads", value_name = "N,…", default_value = "0", allow_negative_numbers = true,
          value_parser = count_list)]
    pub n_threads: List,
    /// Sequences that generate together, in one batch.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=256))]
    pub seqs: u32,
    /// Repetitions of each measurement, after one run to warm up; the table shows the median,
    /// lowest and highest speed.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Report memory, kernels, threads, processor time and huge pages on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON: one line for each combination of threads, depth, prompt and generation.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub evaluation: EvaluationArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,
}

/// Options of `backstitch timeline`.
#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Tokens to generate after the text [default: 0; without text and model, 600].
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N")]
    pub n_predict: Option<u32>,
    /// Fork the sequence N times at its end; each fork continues with another of the most likely
    /// tokens.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u8).range(..=64))]
    pub forks: u8,
    /// Pin a checkpoint at a position, so that a rollback to it is free; may be repeated.
    #[arg(long, value_name = "POS")]
    pub pin: Vec<u32>,
    /// Roll back to a position and report what that cost; may be repeated.
    #[arg(long, value_name = "POS")]
    pub rollback: Vec<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Also draw to an SVG file; "-" is standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

/// Options of `backstitch verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Conformance files (.txt, .tsv, .json), or folders with such files.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Largest difference of a logit with which a case passes.
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = at_least_zero)]
    pub tolerance: f32,
    /// The model, for conformance files that name one that is not in their folder.
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Also fail if a case is not supported.
    #[arg(long)]
    pub strict: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
