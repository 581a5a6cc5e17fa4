//! Options of what is kept on disk: the prompt cache, and sessions.

use super::size::size;
use clap::Args;
use std::path::PathBuf;

/// Whether evaluated prompts are kept on disk.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prompt cache (evaluated prompts on disk, shared by all runs)")]
pub struct CacheArgs {
    /// Folder to take evaluated beginnings of prompts from, and to keep new ones in; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub prompt_cache: Option<PathBuf>,
    /// Take from the folder only; change nothing in it.
    #[arg(long, requires = "prompt_cache", conflicts_with_all = ["prompt_cache_all", "prompt_cache_size"])]
    pub prompt_cache_ro: bool,
    /// Keep what was generated as well.
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_all: bool,
    /// The most the folder may take, like 500M or 8G; what was not used for longest goes first.
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "prompt_cache", value_parser = size)]
    pub prompt_cache_size: u64,
}

/// Sessions in files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session file (one text, to go on with another time)")]
pub struct FileArgs {
    /// Go on from the session in a file; the prompt, if there is one, follows what is there.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    pub restore: Option<PathBuf>,
    /// Save the session to a file at the end; if it is there already, only what is new is written.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}
