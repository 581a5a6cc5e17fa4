//! Options of the commands around a model: `models`, `doctor`, `completions` and `man`.

use super::numbers::count;
use super::{EvaluationArgs, ModelArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of `backstitch models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Folder of models [default: the cache of Hugging Face].
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub evaluation: EvaluationArgs,
}

/// Options of `backstitch completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Shells with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// The Bourne-again shell.
    Bash,
    /// The Z shell.
    Zsh,
    /// The friendly interactive shell.
    Fish,
}

/// Options of `backstitch man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages; it is made if it does not exist.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
