//! Options that several commands share: the model, the text, and how the text is evaluated.
//!
//! The defaults of `--spacing` and `--journal` are those of the library; a test holds them
//! together.

use super::adapters::AdapterArgs;
use super::numbers::count;
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;

/// Options that choose a model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// GGUF file, or the name of a model; without it, the small story model inside the program.
    #[arg(short = 'm', long = "model", value_name = "FILE|NAME")]
    pub model: Option<PathBuf>,
    /// Folder in which models are looked for by name [default: the cache of Hugging Face].
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,
    /// Read the file instead of mapping it: slower to load, but safe while other programs change
    /// it.
    #[arg(long)]
    pub no_mmap: bool,
}

/// Options that give a text.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Input")]
pub struct PromptArgs {
    /// Text of the prompt. Piped input comes before it, on lines of its own; without -p it is the
    /// prompt.
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Read the prompt from a file ("-" is standard input), without its last line break.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Replace \n, \t, \r, \", \', \\ and \xHH in -p by the characters that they stand for.
    #[arg(short = 'e', long)]
    pub escape: bool,
}

/// Options of a context.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Evaluation")]
pub struct ContextArgs {
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    #[command(flatten)]
    pub evaluation: EvaluationArgs,
    #[command(flatten)]
    pub adapters: AdapterArgs,
}

/// Options of evaluation without the number of threads, because `bench` takes several of those.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Evaluation")]
pub struct EvaluationArgs {
    /// Context size, in tokens; 0 is the model's own [default: the model's own, or what half of the
    /// memory beside the weights holds].
    #[arg(short = 'c', long = "ctx-size", value_name = "N")]
    pub n_ctx: Option<u32>,
    /// Logical batch size: the most tokens of a prompt that are planned together.
    #[arg(short = 'b', long = "batch-size", value_name = "N", default_value_t = 2048,
          value_parser = value_parser!(u32).range(1..))]
    pub n_batch: u32,
    /// Physical batch size: the most tokens that are computed together [also: -ub].
    #[arg(long = "ubatch-size", value_name = "N", default_value_t = 512,
          value_parser = value_parser!(u32).range(1..))]
    pub n_ubatch: u32,
    /// Data type of the keys in the KV cache [also: -ctk].
    #[arg(long = "cache-type-k", value_name = "TYPE", value_enum, default_value_t)]
    pub type_k: CacheType,
    /// Data type of the values in the KV cache [also: -ctv].
    #[arg(long = "cache-type-v", value_name = "TYPE", value_enum, default_value_t)]
    pub type_v: CacheType,
    /// Least distance between scheduled checkpoints, in tokens.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = value_parser!(u32).range(1..=1 << 24))]
    pub spacing: u32,
    /// Length of the journal: recurrent models roll back up to N tokens by replay, without running
    /// the model; 0 is none.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u32).range(..=1 << 16))]
    pub journal: u32,
    /// Memory limit of checkpoints, in MiB; a draft model has a quarter of it [default: an eighth
    /// of the memory beside the weights, 256 to 8192].
    #[arg(long, value_name = "N")]
    pub checkpoint_mib: Option<u32>,
    /// True if a draft model is beside the model; see `Command::share_memory`.
    #[arg(skip)]
    pub has_draft_model: bool,
}

/// Data types of cells in the KV cache, by llama.cpp's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CacheType {
    F32,
    #[default]
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}
