//! Options of `run` for files that outlive it: the prompt cache, a folder that all prompts share,
//! and saved sessions, one file for each text.
//!
//! The two exclude each other for reading: a session file says which text to continue, a prompt
//! cache is searched for the beginning of a text that was typed.

use super::size::size;
use clap::Args;
use std::path::PathBuf;

/// Options of the prompt cache. All but the first require `--prompt-cache`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prompt cache")]
pub struct PromptCacheArgs {
    /// Folder of evaluated prefixes: reuse the longest one that begins the prompt, and add new
    /// ones. The folder is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub prompt_cache: Option<PathBuf>,
    /// Only read the prompt cache; change nothing in it.
    #[arg(long, requires = "prompt_cache", conflicts_with_all = ["prompt_cache_all", "prompt_cache_size"])]
    pub prompt_cache_ro: bool,
    /// Add the generated text to the prompt cache as well.
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_all: bool,
    /// Size limit of the prompt cache, like 500M or 8G; the least recently used entries are removed
    /// first.
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "prompt_cache", value_parser = size)]
    pub prompt_cache_size: u64,
}

/// Options of saved sessions. `--restore` and `--save` may name one file, which then grows by what
/// is new.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Session file")]
pub struct FileArgs {
    /// Continue the session that a file holds; a prompt, if there is one, is appended to its text.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_cache")]
    pub restore: Option<PathBuf>,
    /// Sequence to continue if the file holds several; without it, an error lists them.
    #[arg(long, value_name = "ID", requires = "restore")]
    pub sequence: Option<u32>,
    /// Save the session to a file at the end; if the file holds the beginning of this text, only
    /// what is new is written.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Let --save replace a saved state of another text.
    #[arg(long, requires = "save")]
    pub force: bool,
}

/// Options of saved conversations. `--restore` and `--save` may name one file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Conversation file")]
pub struct ConversationArgs {
    /// Continue the conversation that a file holds.
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    /// Save the conversation to a file after every answer and at the end; only what is new is
    /// written.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Let --save replace a saved state of another text.
    #[arg(long, requires = "save")]
    pub force: bool,
    /// Keep what was typed in a file, for the keys Up and Ctrl-R in later chats.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}
