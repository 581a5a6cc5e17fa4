//! Options of what is kept on disk: the prompt cache, and sessions.

use super::size::size;
use clap::Args;
use std::path::PathBuf;

/// Options of the prompt cache.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prompt cache")]
pub struct CacheArgs {
    /// Folder of evaluated prefixes: takes the longest that fits the prompt, keeps new ones; made if it is
    /// not there.
    #[arg(long, value_name = "DIR")]
    pub prompt_cache: Option<PathBuf>,
    /// Take from the folder only; change nothing in it.
    #[arg(long, requires = "prompt_cache", conflicts_with_all = ["prompt_cache_all", "prompt_cache_size"])]
    pub prompt_cache_ro: bool,
    /// Keep what was generated as well.
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_all: bool,
    /// Most bytes of the folder, like 500M or 8G; the least recently used entries go first.
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "prompt_cache", value_parser = size)]
    pub prompt_cache_size: u64,
}

/// Options of saved sessions.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session file")]
pub struct FileArgs {
    /// Go on from the session in a file; the prompt, if there is one, follows what is there.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    pub restore: Option<PathBuf>,
    /// The sequence to go on with, where the file holds several; an error lists them.
    #[arg(long, value_name = "ID", requires = "restore")]
    pub sequence: Option<u32>,
    /// Save the session to a file at the end; if the text is there already, only what is new is written.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Let --save replace a saved state that holds another text.
    #[arg(long, requires = "save")]
    pub force: bool,
}
