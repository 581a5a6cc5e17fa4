//! Why the store did not do something. None of it ever concerns what a model computes: whoever asked can report it and go on.

use super::pack::Flaw;
use core::fmt;
use std::boxed::Box;
use std::io;
use std::path::Path;

/// Why a store refused or failed; the store is as it was, or smaller.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    Io {
        /// What was to be done.
        doing: Doing,
        /// On which file or folder.
        path: Box<Path>,
        /// What it says.
        error: io::Error,
    },
    /// A file does not hold what its name promises.
    Pack {
        /// The file.
        path: Box<Path>,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// The bytes of a payload are not those that were stored. A writable store removes the file.
    Payload {
        /// The file.
        path: Box<Path>,
        /// Where the payload begins in it.
        offset: u64,
        /// The checksum it should have.
        stored: u64,
        /// The checksum it has.
        computed: u64,
    },
    /// A payload is longer than any that is read into memory of its own.
    LongPayload {
        /// The file.
        path: Box<Path>,
        /// Bytes of the payload.
        bytes: u64,
        /// The most there may be.
        limit: u64,
    },
    /// Somebody asked for a payload in pieces that are not as long as it is.
    Pieces {
        /// Bytes of the pieces.
        found: u64,
        /// Bytes of the payload.
        wanted: u64,
    },
    /// What is to be stored does not fit together.
    Entry {
        /// What of it.
        what: &'static str,
        /// How much was given.
        found: u64,
        /// The most, or exactly what, it may be.
        wanted: u64,
    },
    /// Blocks before those given are not stored (any more), so nobody could reach them.
    Gap {
        /// The first of them, counted from the start of the prompt.
        block: u64,
    },
    /// A pack would be larger than everything may be together.
    TooLarge {
        /// The store's folder.
        folder: Box<Path>,
        /// Its bytes.
        need: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// What is being written right now, and what the new blocks follow, leave too little of the budget.
    NoRoom {
        /// The store's folder.
        folder: Box<Path>,
        /// Bytes that were needed.
        need: u64,
        /// Bytes that could not be freed.
        kept: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Other processes kept storing parts of the same prompt, or removing what it follows.
    Raced {
        /// The store's folder.
        folder: Box<Path>,
    },
    /// Another process held the folder's lock for too long; it may have been stopped.
    Locked {
        /// The store's folder.
        folder: Box<Path>,
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// The store was opened to read only.
    ReadOnly,
}

/// What was to be done with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Making the folder.
    MakeFolder,
    /// Listing the folder.
    List,
    /// Opening a pack.
    Open,
    /// Reading a pack.
    Read,
    /// Asking for a file's length and time.
    Ask,
    /// Opening or locking the lock file.
    Lock,
    /// Making a temporary file.
    Create,
    /// Reserving room.
    Reserve,
    /// Writing.
    Write,
    /// Giving a file its final name.
    Rename,
    /// Removing a file.
    Remove,
    /// Marking a file as used.
    Touch,
    /// Starting a thread.
    StartThread,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MakeFolder => "making the folder",
            Self::List => "listing the folder",
            Self::Open => "opening",
            Self::Read => "reading",
            Self::Ask => "asking for the length",
            Self::Lock => "locking",
            Self::Create => "making the file",
            Self::Reserve => "reserving room",
            Self::Write => "writing",
            Self::Rename => "renaming",
            Self::Remove => "removing",
            Self::Touch => "setting the time",
            Self::StartThread => "starting a thread",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => write!(f, "{}: {doing} failed: {error}", path.display()),
            Self::Pack { path, flaw } => write!(f, "{} {flaw}", path.display()),
            Self::Payload { path, offset, stored, computed } => write!(
                f,
                "{} is damaged: the checksum of the payload at offset {offset} is {computed:016x}, it should be {stored:016x}",
                path.display()
            ),
            Self::Pieces { found, wanted } => {
                write!(
                    f,
                    "the payload has {wanted} bytes, {found} were asked for; it belongs to another cache"
                )
            }
            Self::Entry { what, found, wanted } => write!(f, "{what}: {found} given, {wanted} expected"),
            Self::Gap { block } => {
                write!(f, "block {block} is not stored, so what follows it cannot be; store from there on")
            }
            Self::TooLarge { folder, need, budget } => write!(
                f,
                "{need} bytes do not fit the budget of {budget} of the store {}; raise it",
                folder.display()
            ),
            Self::NoRoom { folder, need, kept, budget } => write!(
                f,
                "{need} bytes do not fit: {kept} of the {budget} of the store {} are in use; raise the budget or try later",
                folder.display()
            ),
            Self::Raced { folder } => write!(
                f,
                "other processes keep changing the same prompt's blocks in {}; try later",
                folder.display()
            ),
            Self::Locked { folder, seconds } => write!(
                f,
                "the store {} was locked by another process for {seconds} s; see whether that one is stopped",
                folder.display()
            ),
            Self::LongPayload { path, bytes, limit } => write!(
                f,
                "{} has a payload of {bytes} bytes, at most {limit} are read at once; remove the file",
                path.display()
            ),
            Self::ReadOnly => write!(f, "the store was opened to read only"),
        }
    }
}

impl Error {
    /// Whether a file or folder was not there.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // The text has what the system says.
            Self::Io { error, .. } => error.source(),
            _ => None,
        }
    }
}
