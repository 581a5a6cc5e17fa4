//! The errors of the program, each shown as one line.
//!
//! A line says what was found, what was wanted, and what to do, in the words of the command line:
//! it names options (`-c`), not the parameters of the library (`n_ctx`), and sizes with units.
//! `engine`, `memory` and `files` translate the errors of the libraries; `kinds` recognises files
//! of the wrong kind, so that the line can name the command that takes them.

mod engine;
mod files;
mod kinds;
mod memory;

use backstitch_kv::storage::{self, prompt_cache};
use std::fmt;
use std::io;
use std::path::PathBuf;

pub use engine::of_engine;
pub use files::{of_file, of_prompt_cache, of_state};

/// An error of a command.
///
/// Commands return it to `main`, which prints it with [`chain`] after "error: " and ends with exit
/// code 1. Errors of the libraries keep their type where a caller looks at it ([`Error::State`],
/// [`Error::Engine`]); an error that only has to be read is [`Error::Refused`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    Read {
        /// Path of the file, as it was typed.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file could not be written.
    Write {
        /// Path of the file, as it was typed.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A state file cannot be used: it is damaged, or does not fit the model or the context.
    State {
        /// Path of the file, as it was typed.
        path: PathBuf,
        /// Error of the state library.
        source: storage::Error,
    },
    /// A state could not be saved.
    NotSaved {
        /// Error of the state library.
        source: storage::Error,
        /// True if the file existed before. It then holds its old content.
        was_there: bool,
    },
    /// Two states differ.
    Different {
        /// Number of differences.
        n: usize,
    },
    /// A prompt cache cannot be used.
    PromptCache(prompt_cache::Error),
    /// A prompt cache has damaged or left-over files.
    Unclean {
        /// Number of problems, each printed on a line of its own.
        n: usize,
    },
    /// The engine refused: a model file is damaged, or a request impossible.
    Engine(backstitch_models::Error),
    /// The request cannot be carried out. The text says why, and what to do instead.
    Refused(String),
    /// Standard output or standard input failed.
    Terminal(io::Error),
    /// Conformance cases failed.
    Failed {
        /// Number of failed cases.
        n: usize,
    },
    /// Ctrl-C, or another signal that ends programs, stopped the command.
    Interrupted,
}

impl Error {
    /// Return true if the reader of the output closed it, as `head` does. That is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Terminal(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "cannot read {}: {}", path.display(), plain(source)),
            Self::Write { path, source } => write!(f, "cannot write {}: {}", path.display(), plain(source)),
            // These errors name the file themselves.
            Self::State {
                source: source @ (storage::Error::File { .. } | storage::Error::Io(_)), ..
            } => f.write_str(&of_state(source)),
            Self::State { path, source } => write!(f, "{}: {}", path.display(), of_state(source)),
            Self::NotSaved { source, was_there } => {
                write!(f, "{}; {}", of_state(source), what_is_left(source, *was_there))
            }
            Self::Different { n: 1 } => f.write_str("the states differ in 1 way"),
            Self::Different { n } => write!(f, "the states differ in {n} ways"),
            Self::PromptCache(source) => f.write_str(&of_prompt_cache(source)),
            Self::Unclean { n: 1 } => {
                f.write_str("1 problem; `backstitch cache prune` removes damaged and left-over files")
            }
            Self::Unclean { n } => {
                write!(f, "{n} problems; `backstitch cache prune` removes damaged and left-over files")
            }
            Self::Engine(source) => f.write_str(&of_engine(source)),
            Self::Refused(text) => f.write_str(text),
            Self::Terminal(source) => write!(f, "input or output failed: {}", plain(source)),
            Self::Failed { n: 1 } => f.write_str("1 case failed"),
            Self::Failed { n } => write!(f, "{n} cases failed"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Return the end of the error line of a failed save: the content of the file after it.
fn what_is_left(error: &storage::Error, was_there: bool) -> &'static str {
    match error {
        // The new bytes are written, or the new file has its name: only the sync failed.
        storage::Error::File { operation: storage::Operation::Sync, .. } => {
            "the file may hold the old state or the new one"
        }
        _ if was_there => "the file is as it was, and the new state is not saved",
        _ => "the state is not saved",
    }
}

/// Return the message of an operating system without the number after it, in lower case.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(text.as_str(), |(message, _)| message);
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text contains that of the inner error, so the chain continues after that one.
            Self::Read { source, .. } | Self::Write { source, .. } | Self::Terminal(source) => {
                source.source()
            }
            Self::State { source, .. } | Self::NotSaved { source, .. } => source.source(),
            Self::PromptCache(source) => source.source(),
            Self::Engine(source) => source.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Terminal(source)
    }
}

impl From<prompt_cache::Error> for Error {
    fn from(source: prompt_cache::Error) -> Self {
        Self::PromptCache(source)
    }
}

impl From<backstitch_models::Error> for Error {
    fn from(source: backstitch_models::Error) -> Self {
        match source {
            backstitch_models::Error::Cancelled => Self::Interrupted,
            source => Self::Engine(source),
        }
    }
}

/// Join the messages of all levels of an error.
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::one_line;

    #[test]
    fn a_missing_file_reads_as_one_plain_line() {
        let source = io::Error::from_raw_os_error(2);
        let error = Error::Read { path: "no\nfile".into(), source };
        assert_eq!(one_line(&error.to_string()), "cannot read no\\nfile: no such file or directory");
    }

    #[test]
    fn a_cause_is_named_once() {
        let source = io::Error::other("the disk is gone");
        let error = Error::Read { path: "file".into(), source };
        assert_eq!(chain(&error), "cannot read file: the disk is gone");
    }

    #[test]
    fn only_a_closed_output_is_no_failure() {
        assert!(Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_closed_pipe());
        assert!(!Error::from(io::Error::from(io::ErrorKind::StorageFull)).is_closed_pipe());
    }
}
