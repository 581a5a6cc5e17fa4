//! Why the program failed, in one line.

mod kinds;
mod words;

use backstitch_kv::{state, store};
use std::fmt;
use std::io;
use std::path::PathBuf;
pub use words::of_engine;

/// What a command can fail with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A state file cannot be used.
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        source: state::Error,
    },
    /// A state could not be saved.
    NotSaved {
        /// Why.
        source: state::Error,
        /// The file was there before, and holds what it held.
        was_there: bool,
    },
    /// States are not the same.
    Different {
        /// In how many ways.
        n: usize,
    },
    /// A prompt cache cannot be used.
    Store(store::Error),
    /// Not everything in a prompt cache is as it should be.
    Unclean {
        /// How many findings there are.
        n: usize,
    },
    /// The engine refused: a file is damaged, or a request impossible.
    Engine(backstitch_models::Error),
    /// What was asked for cannot be done; the text says why and the way out.
    Refused(String),
    /// Standard output or input failed.
    Terminal(io::Error),
    /// Some conformance cases failed.
    Failed {
        /// How many.
        n: usize,
    },
    /// Ctrl-C, or another signal that ends programs.
    Interrupted,
}

impl Error {
    /// Whether the reader of our output went away, which is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Terminal(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "cannot read {}: {}", path.display(), plain(source)),
            Self::Write { path, source } => write!(f, "cannot write {}: {}", path.display(), plain(source)),
            // These name the file themselves.
            Self::State { source: source @ (state::Error::File { .. } | state::Error::Io(_)), .. } => {
                source.fmt(f)
            }
            Self::State { path, source } => write!(f, "{}: {}", path.display(), words::of_state(source)),
            Self::NotSaved { source, was_there } => {
                write!(f, "{source}; {}", what_is_left(source, *was_there))
            }
            Self::Different { n: 1 } => f.write_str("the states differ in 1 way"),
            Self::Different { n } => write!(f, "the states differ in {n} ways"),
            Self::Store(source) => source.fmt(f),
            Self::Unclean { n: 1 } => {
                f.write_str("1 finding; `backstitch store prune` removes what is damaged or left over")
            }
            Self::Unclean { n } => {
                write!(f, "{n} findings; `backstitch store prune` removes what is damaged or left over")
            }
            Self::Engine(source) => f.write_str(&words::of_engine(source)),
            Self::Refused(text) => f.write_str(text),
            Self::Terminal(source) => write!(f, "input or output failed: {}", plain(source)),
            Self::Failed { n: 1 } => f.write_str("1 case failed"),
            Self::Failed { n } => write!(f, "{n} cases failed"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// What is in a file after a save that failed.
fn what_is_left(error: &state::Error, was_there: bool) -> &'static str {
    match error {
        // It had its name, or its new bytes, already.
        state::Error::File { operation: state::Operation::Sync, .. } => {
            "the file may hold the old state or the new one"
        }
        _ if was_there => "the file is as it was, and the new state is not saved",
        _ => "the state is not saved",
    }
}

/// An operating system's message without the number behind it, in lower case.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text has that of the error inside, so the chain goes on behind it.
            Self::Read { source, .. } | Self::Write { source, .. } | Self::Terminal(source) => {
                source.source()
            }
            Self::State { source, .. } | Self::NotSaved { source, .. } => source.source(),
            Self::Store(source) => source.source(),
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

impl From<store::Error> for Error {
    fn from(source: store::Error) -> Self {
        Self::Store(source)
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

/// The messages of all levels of an error, joined.
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// `text` on one line: file names and names inside files may hold line breaks and terminal commands.
pub fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
