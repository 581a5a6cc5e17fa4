//! Options of `backstitch cache`, which looks after prompt caches, and the texts below them.
//!
//! Prompt caches are made and filled by `run --prompt-cache`, whose options are in `files`.

use super::ModelArgs;
use super::size::{age, size};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Text below the subcommands of `cache`.
pub const EXAMPLES: &str = "\
Examples:
  backstitch cache list ~/.cache/backstitch -m model.gguf
                                    entries, with the beginning of each text
  backstitch cache check ~/.cache/backstitch
                                    find damage
  backstitch cache prune ~/.cache/backstitch --max-size 1G
                                    make room

A prompt cache is a folder of entries. An entry is a file that never changes: it
holds blocks of 32 tokens of a prompt, and what a model computed for them. Any
entry may be removed at any time, also by hand: a run that misses it evaluates
the tokens again.";

/// Options of `backstitch cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// Subcommands of `cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the entries, the least recently used first.
    #[command(after_help = LIST_EXAMPLES, mut_arg("model", |arg| arg.help(LIST_MODEL)))]
    List(ListArgs),
    /// Check all entries for damage.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckCacheArgs),
    /// Remove damaged and least recently used entries.
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(PruneArgs),
}

impl CacheCommand {
    /// Return the options that name a model.
    pub fn models(&mut self) -> Option<&mut ModelArgs> {
        match self {
            Self::List(args) => Some(&mut args.model),
            Self::Check(_) | Self::Prune(_) => None,
        }
    }
}

/// Help of `-m` for `cache list`, where it is no model to run.
const LIST_MODEL: &str = "GGUF file; entries of this model are shown with the beginnings of their texts";

/// Text below the options of `cache list`.
const LIST_EXAMPLES: &str = "\
Examples:
  backstitch cache list prompts
  backstitch cache list prompts -m model.gguf     with beginnings of texts
  backstitch cache list prompts --json | jq 'map(.bytes) | add'";

/// Text below the options of `cache check`.
const CHECK_EXAMPLES: &str = "\
Examples:
  backstitch cache check prompts

Changes nothing. A damaged entry is never used: a run that meets one evaluates
the tokens instead. `backstitch cache prune` removes it.

Exit codes: 0 every entry is as it was written, 1 some are not; each has a line.";

/// Text below the options of `cache prune`.
const PRUNE_EXAMPLES: &str = "\
Examples:
  backstitch cache prune prompts --max-size 500M
  backstitch cache prune prompts --older-than 30d
  backstitch cache prune prompts            damaged and left-over files only

Reads all of the cache, and removes what `backstitch cache check` would report.";

/// Options of `backstitch cache list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Folder of the prompt cache.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Options of `backstitch cache check`.
#[derive(Debug, Args)]
pub struct CheckCacheArgs {
    /// Folder of the prompt cache.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch cache prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Folder of the prompt cache.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Remove the least recently used entries until the rest fits, like 500M or 8G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Remove entries that were not used for this long, like 12h or 30d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
