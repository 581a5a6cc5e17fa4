//! Options of `backstitch store`.

use super::ModelArgs;
use super::size::{age, size};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  backstitch store list ~/.cache/backstitch -m model.gguf
                                    entries, with the beginning of each text
  backstitch store check ~/.cache/backstitch
                                    everything is as it was written, or not
  backstitch store prune ~/.cache/backstitch --max-size 1G
                                    make room

A prompt cache is a folder of files that never change, each with blocks of 32
tokens of some prompt, and what a model computed for them. All of it can be made
again, so any file may be removed at any time, by hand too.";

/// `backstitch store`
#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What to do with a prompt cache.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// List the entries, the least recently used first.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Read all entries and check them.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckStoreArgs),
    /// Remove damaged and the least recently used entries.
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(PruneArgs),
}

const LIST_EXAMPLES: &str = "\
Examples:
  backstitch store list cache
  backstitch store list cache -m model.gguf       with beginnings of texts
  backstitch store list cache --json | jq 'map(.bytes) | add'";

const CHECK_EXAMPLES: &str = "\
Examples:
  backstitch store check cache

Changes nothing. What is damaged is never used: a run that comes upon it
evaluates the tokens instead. `backstitch store prune` removes it.

Exit codes: 0 everything is as it was written, 1 something is not, each on a
line of its own.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  backstitch store prune cache --max-size 500M
  backstitch store prune cache --older-than 30d
  backstitch store prune cache              what is damaged or left over

Reads all of the cache: whatever `backstitch store check` finds damaged goes.";

/// `backstitch store list`
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

/// `backstitch store check`
#[derive(Debug, Args)]
pub struct CheckStoreArgs {
    /// Folder of the prompt cache.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `backstitch store prune`
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Folder of the prompt cache.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Leave at most so much, like 500M or 8G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Remove what was not used for so long, like 12h or 30d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
