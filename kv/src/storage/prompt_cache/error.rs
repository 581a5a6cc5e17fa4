//! Errors of the prompt cache. None of them concerns what a model computes: a program can report it
//! and go on.

use crate::error::Size;
use crate::storage::error;
use std::boxed::Box;
use std::path::Path;

/// Why a prompt cache refused or failed; it is as it was, or smaller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation on a file or the folder: [`error::Error::File`].
    #[error(transparent)]
    Disk(error::Error),
    /// An entry cannot be read, or is not what it should be. A cache that may write removes one
    /// that is damaged.
    #[error("{}: {error}", .path.display())]
    Entry {
        /// The file.
        path: Box<Path>,
        /// The problem.
        error: error::Error,
    },
    /// A resume point is whole, but not one of such layers, or it is larger than a reader takes.
    #[error(transparent)]
    Resume(error::Error),
    /// A request, or a prefix that is to be stored, does not fit together.
    #[error("{what}: {found} given, {wanted} expected")]
    Request {
        /// The part of it.
        what: &'static str,
        /// The number that was given.
        found: u64,
        /// The most, or exactly what, it may be.
        wanted: u64,
    },
    /// Blocks before those given are not stored (any more), so nobody could reach them.
    #[error("block {block} is not stored, so what follows it cannot be; store from there on")]
    Gap {
        /// The first of them, counted from the start of the prompt.
        block: u64,
    },
    /// An entry would be larger than everything may be together.
    #[error(
        "{} do not fit the budget of {} of the prompt cache {}; raise it",
        Size(*.need),
        Size(*.budget),
        .folder.display()
    )]
    TooLarge {
        /// The folder.
        folder: Box<Path>,
        /// Bytes of the entry.
        need: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Entries that are being written right now, and those that the new blocks follow, leave too
    /// little of the budget.
    #[error(
        "{} do not fit: {} of the {} of the prompt cache {} are in use; raise the budget or try later",
        Size(*.need),
        Size(*.kept),
        Size(*.budget),
        .folder.display()
    )]
    NoRoom {
        /// The folder.
        folder: Box<Path>,
        /// Bytes that were needed.
        need: u64,
        /// Bytes that could not be freed.
        kept: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Other processes kept storing parts of the same prompt, or removing what it follows.
    #[error("other processes keep changing the same prompt's blocks in {}; try later", .folder.display())]
    Raced {
        /// The folder.
        folder: Box<Path>,
    },
    /// Another process held the folder's lock for too long; it may have been stopped.
    #[error(
        "the prompt cache {} was locked by another process for {seconds} s; see whether that one is stopped",
        .folder.display()
    )]
    Locked {
        /// The folder.
        folder: Box<Path>,
        /// Seconds of waiting.
        seconds: u64,
    },
    /// The prompt cache was opened to read only.
    #[error("the prompt cache was opened to read only; open it to write")]
    ReadOnly,
}

/// Reading an entry's own bytes failed, or a container in them.
impl From<error::Error> for Error {
    fn from(error: error::Error) -> Self {
        match error {
            error::Error::File { .. } => Self::Disk(error),
            error => Self::Resume(error),
        }
    }
}

impl Error {
    /// Return true if a file or folder was not there.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Disk(error::Error::File { error, .. })
            if matches!(error.problem, crate::file::Problem::Missing))
    }

    /// Return true if the bytes of an entry are to blame, rather than the way to them.
    pub(super) fn is_damage(&self) -> bool {
        use error::Error::{File, Io, OutOfMemory};
        matches!(self, Self::Entry { error, .. } if !matches!(error, File { .. } | Io(_) | OutOfMemory { .. }))
    }
}
