//! Options of the commands that judge models and embed texts: `perplexity` and `embed`.

use super::adapters::AdapterArgs;
use super::serve::PoolingArg;
use super::{ContextArgs, ModelArgs, PromptArgs};
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;

/// Options of `backstitch perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// Evaluate only the first N windows of the text [default: all].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Begin a window every N tokens and score the last N of each, instead of the second half of
    /// windows that do not overlap [also: --ppl-stride].
    #[arg(long, alias = "ppl-stride", value_name = "N", value_parser = value_parser!(u32).range(1..),
          conflicts_with_all = ["kl_divergence_base", "multiple_choice"])]
    pub stride: Option<u32>,
    /// File for the probabilities of this model, in llama.cpp's layout; with --kl-divergence, the
    /// file of the model to compare with.
    #[arg(long, value_name = "FILE", alias = "save-all-logits", conflicts_with = "multiple_choice")]
    pub kl_divergence_base: Option<PathBuf>,
    /// Compare with the model whose probabilities are in the file of --kl-divergence-base; the text
    /// is in that file too.
    #[arg(long, requires = "kl_divergence_base", conflicts_with_all = ["prompt", "file"])]
    pub kl_divergence: bool,
    /// Answer the questions of a file, a line of JSON each: {"context": "The sky is", "endings":
    /// ["blue", "salty"], "label": 0}.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "file"])]
    pub multiple_choice: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

/// Options of `backstitch embed`. Without texts and a file, each line of standard input is a text.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    /// The texts; without them and -f, the lines of standard input.
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub texts: Vec<String>,
    /// Read texts from a file, one a line ("-" is standard input).
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Pooling of the embeddings of a text's tokens [default: the model's, else mean].
    #[arg(long, value_name = "HOW", value_enum)]
    pub pooling: Option<PoolingArg>,
    /// Norm that embeddings are divided by [also: --embd-normalize].
    #[arg(long, alias = "embd-normalize", value_name = "NORM", value_enum, default_value_t)]
    pub normalize: NormArg,
    /// Print the cosine similarities of all texts instead of the embeddings.
    #[arg(long)]
    pub similarity: bool,
    /// Print JSON instead of text: a line for each text, or one for all similarities.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true,
          value_parser = super::numbers::count)]
    pub n_threads: Option<u32>,
    #[command(flatten)]
    pub adapters: AdapterArgs,
}

/// Norms of embeddings. The numbers are llama.cpp's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum NormArg {
    /// No norm: embeddings stay as they are.
    #[value(alias = "-1")]
    None,
    /// The largest magnitude, so that elements fill 16-bit integers.
    #[value(alias = "0")]
    Max,
    /// The sum of magnitudes.
    #[value(alias = "1")]
    L1,
    /// The root of the sum of squares.
    #[default]
    #[value(alias = "2")]
    L2,
}
