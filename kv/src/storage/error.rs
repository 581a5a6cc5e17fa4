//! Errors of containers and of the files that they lie in, each with its place and what would be
//! right.

use super::header::{Fingerprint, Hex, Scope, Tag};
use crate::error::Size;
use core::fmt;

/// Why a state or a prompt cache could not be read or written. A prompt cache is as it was then, or
/// smaller.
///
/// `offset` counts bytes from the start of the container.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file ends before something that it should hold.
    #[error(
        "{section} at {offset} is cut off: {} are missing; use another copy of the file",
        Size(.need.saturating_sub(*.have))
    )]
    Truncated {
        /// The part that is not there, or not whole.
        section: Tag,
        /// The offset at which it should begin.
        offset: u64,
        /// Bytes that the file must have for it.
        need: u64,
        /// Bytes that the file has.
        have: u64,
    },
    /// Bytes are not those that were written.
    #[error(
        "{section} at {offset} is damaged: its checksum is {computed:016x}, {stored:016x} was written; \
         use another copy of the file"
    )]
    Checksum {
        /// The part that is damaged.
        section: Tag,
        /// The offset at which it begins.
        offset: u64,
        /// The checksum that was written.
        stored: u64,
        /// The checksum of what is there.
        computed: u64,
    },
    /// The file is not a state file of Backstitch.
    #[error("not a state file of Backstitch: it begins with \"{}\"", .found.escape_ascii())]
    Magic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// The file has a format version that this release does not read.
    #[error(
        "the file has format version {found}, this release reads version {wanted}; {}",
        way_out(.found > .wanted)
    )]
    Version {
        /// Its format version.
        found: u32,
        /// The one that this release reads.
        wanted: u32,
    },
    /// The state belongs to another model.
    #[error(
        "the state belongs to model {}, not to {}; open the model that it was saved with",
        Hex(.stored),
        Hex(.wanted)
    )]
    Fingerprint {
        /// First bytes of the fingerprint in the file.
        stored: [u8; 16],
        /// First bytes of the fingerprint of the model at hand.
        wanted: [u8; 16],
    },
    /// A whole context where one sequence was wanted, or the other way round.
    #[error("the file holds {found}, not {wanted}")]
    Scope {
        /// The scope of the file.
        found: Scope,
        /// The scope that was wanted.
        wanted: Scope,
    },
    /// A section that is needed is not there.
    #[error("{section} {index} is missing; the file was not written by this format's writer")]
    Missing {
        /// Its tag.
        section: Tag,
        /// Its index.
        index: u64,
    },
    /// A section was written twice.
    #[error("{section} {index} was written before; give it another index")]
    Repeated {
        /// Its tag.
        section: Tag,
        /// Its index.
        index: u64,
    },
    /// The file cannot be understood without a section that this release does not know.
    #[error("{tag} version {version} is unknown here but needed; use a later release")]
    UnknownRequired {
        /// Its tag.
        tag: Tag,
        /// Its version.
        version: u16,
    },
    /// A section is compressed in a way that this build cannot undo.
    #[error(
        "{section} at {offset} is compressed with codec {codec}; \
         use a build that has it (1 and 2: feature zstd)"
    )]
    Codec {
        /// The section.
        section: Tag,
        /// The offset at which it begins.
        offset: u64,
        /// The number of the codec.
        codec: u8,
    },
    /// More than there can be.
    #[error("{}", too_large(.what, *.value, *.limit))]
    TooLarge {
        /// The things that are too many.
        what: &'static str,
        /// Their number.
        value: u64,
        /// The most there can be.
        limit: u64,
    },
    /// A value that makes no sense where it stands.
    #[error("{section} at {offset}: {what} is {found}, {wanted} wanted")]
    Malformed {
        /// The section that it stands in.
        section: Tag,
        /// The offset of the section, or of the value.
        offset: u64,
        /// The name of the value.
        what: &'static str,
        /// The value.
        found: u64,
        /// The value that it should be.
        wanted: u64,
    },
    /// A section is said to lie where none can be.
    #[error(
        "{section} of {} is said to be at {offset}, where none can be; sections end before {end}",
        Size(*.len)
    )]
    Misplaced {
        /// The section.
        section: Tag,
        /// The offset at which it is said to begin.
        offset: u64,
        /// Bytes that it is said to have.
        len: u64,
        /// The end of all sections.
        end: u64,
    },
    /// Two sections share some of their bytes, but not all.
    #[error("{section} at {offset} overlaps {other}; the file was not written by this format's writer")]
    Overlap {
        /// One of them.
        section: Tag,
        /// The one before.
        other: Tag,
        /// The offset of the former.
        offset: u64,
    },
    /// The allocator refused.
    #[error("no memory for {}; free some", Size(*.bytes))]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The memory that a state goes to or comes from refused.
    #[error(transparent)]
    Memory(#[from] crate::Error),
    /// The receiver or the giver of bytes refused.
    #[error(transparent)]
    Io(#[from] crate::io::Error),
    /// Somebody else was saving to the same path, or to the same prompt cache, for too long; that
    /// process may have been stopped.
    #[cfg(feature = "std")]
    #[error(
        "{} was locked for {seconds} s by another process that saves; see whether that one is stopped",
        .path.display()
    )]
    Locked {
        /// The lock file.
        path: std::boxed::Box<std::path::Path>,
        /// Seconds of waiting.
        seconds: u64,
    },
    /// The file at the path was to be kept, as a [`Watch`](super::Watch) said; nothing was saved.
    #[cfg(feature = "std")]
    #[error("{} is to stay as it is; save to another file", .path.display())]
    NotReplaced {
        /// The file that is there.
        path: std::boxed::Box<std::path::Path>,
    },
    /// The file could not be saved to, because its lock could not be had or it could not be
    /// written; all that was to be saved is in a file beside it.
    #[cfg(feature = "std")]
    #[error("{cause}; saved as {} instead, rename it once that is mended", .path.display())]
    SavedBeside {
        /// The file that holds it.
        path: std::boxed::Box<std::path::Path>,
        /// The reason that kept the other from being saved to.
        cause: std::boxed::Box<Error>,
    },
    /// The file could not be saved to, and no file beside it could be written either; nothing was
    /// saved.
    #[cfg(feature = "std")]
    #[error("{cause}; nor could a file be written beside it: {beside}; save to another folder")]
    NotSaved {
        /// The reason that kept the file from being saved to.
        cause: std::boxed::Box<Error>,
        /// The reason that kept a file beside it from being written.
        beside: std::boxed::Box<Error>,
    },
    /// A file could not be read or written.
    #[cfg(feature = "std")]
    #[error("cannot {operation}: {error}")]
    File {
        /// The operation that was tried.
        operation: Operation,
        /// Which file, and why not.
        error: crate::file::FileError,
    },
    /// An entry of a prompt cache cannot be read, or is not what it should be. A cache that may
    /// write removes one that is damaged.
    #[cfg(feature = "std")]
    #[error("{}: {error}", .path.display())]
    Entry {
        /// The file.
        path: std::boxed::Box<std::path::Path>,
        /// The problem.
        error: std::boxed::Box<Error>,
    },
    /// A request to a prompt cache, or a prefix that is to be stored, does not fit together.
    #[cfg(feature = "std")]
    #[error("{what}: {found} given, {wanted} expected")]
    Request {
        /// The part of it.
        what: &'static str,
        /// The number that was given.
        found: u64,
        /// The most, or exactly what, it may be.
        wanted: u64,
    },
    /// Blocks before those given are not stored in the prompt cache (any more), so nobody could
    /// reach them.
    #[cfg(feature = "std")]
    #[error("block {block} is not stored, so what follows it cannot be; store from there on")]
    Gap {
        /// The first of them, counted from the start of the prompt.
        block: u64,
    },
    /// An entry would be larger than everything in its prompt cache may be together.
    #[cfg(feature = "std")]
    #[error(
        "{} do not fit the budget of {} of the prompt cache {}; raise it",
        Size(*.need),
        Size(*.budget),
        .folder.display()
    )]
    OverBudget {
        /// The folder.
        folder: std::boxed::Box<std::path::Path>,
        /// Bytes of the entry.
        need: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Entries that are being written right now, and those that the new blocks follow, leave too
    /// little of the budget of a prompt cache.
    #[cfg(feature = "std")]
    #[error(
        "{} do not fit: {} of the {} of the prompt cache {} are in use; raise the budget or try later",
        Size(*.need),
        Size(*.kept),
        Size(*.budget),
        .folder.display()
    )]
    NoRoom {
        /// The folder.
        folder: std::boxed::Box<std::path::Path>,
        /// Bytes that were needed.
        need: u64,
        /// Bytes that could not be freed.
        kept: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Other processes kept storing parts of the same prompt, or removing what it follows.
    #[cfg(feature = "std")]
    #[error("other processes keep changing the same prompt's blocks in {}; try later", .folder.display())]
    Raced {
        /// The folder of the prompt cache.
        folder: std::boxed::Box<std::path::Path>,
    },
    /// The prompt cache was opened to read only.
    #[cfg(feature = "std")]
    #[error("the prompt cache was opened to read only; open it to write")]
    ReadOnly,
}

/// An operation on a file or a folder.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening it.
    Open,
    /// Waiting for others who save to it.
    Lock,
    /// Reading it.
    Read,
    /// Making a new one beside it.
    Create,
    /// Writing it.
    Write,
    /// Making what was written durable.
    Sync,
    /// Giving the new one its name.
    Rename,
    /// Removing it.
    Remove,
    /// Making a folder.
    MakeFolder,
    /// Listing a folder.
    List,
    /// Asking for length and time.
    Ask,
    /// Changing its length.
    Resize,
    /// Noting that it was used.
    Touch,
    /// Starting a thread.
    StartThread,
}

#[cfg(feature = "std")]
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::MakeFolder => "make the folder",
            Self::List => "list",
            Self::Ask => "ask for length and time",
            Self::Resize => "make room",
            Self::Touch => "set the time",
            Self::StartThread => "start a thread",
        })
    }
}

/// Return what to do about a format version that this release does not read.
fn way_out(is_later: bool) -> &'static str {
    match is_later {
        true => "use a later release",
        false => "restore it with the release that saved it, or re-evaluate its text",
    }
}

/// Return the text of [`Error::TooLarge`], in which bytes have units.
fn too_large(what: &str, value: u64, limit: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match what.strip_prefix("bytes of ") {
        Some(what) => write!(f, "{what} of {}, {} at most", Size(value), Size(limit)),
        None => write!(f, "{what}: {value}, {limit} at most"),
    })
}

impl Error {
    /// Return the error of the system about a file.
    #[cfg(feature = "std")]
    pub(super) fn file(
        operation: Operation,
        path: &std::path::Path,
        problem: impl Into<crate::file::Problem>,
    ) -> Self {
        Self::File { operation, error: crate::file::FileError::new(path, problem.into()) }
    }

    /// Return true if a file or folder was not there.
    #[cfg(feature = "std")]
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::File { error, .. } if matches!(error.problem, crate::file::Problem::Missing))
    }

    /// Return true if the bytes of an entry are to blame, rather than the way to them.
    #[cfg(feature = "std")]
    pub(super) fn is_damage(&self) -> bool {
        let is_damage =
            |error: &Self| !matches!(error, Self::File { .. } | Self::Io(_) | Self::OutOfMemory { .. });
        matches!(self, Self::Entry { error, .. } if is_damage(error))
    }

    /// Return the state of another model than `wanted`.
    pub(super) fn fingerprint(stored: &Fingerprint, wanted: &Fingerprint) -> Self {
        Self::Fingerprint { stored: stored.front(), wanted: wanted.front() }
    }
}

/// Refuse a value at `offset`, or in a section that begins there, unless it is the one that is
/// wanted.
///
/// # Errors
/// [`Error::Malformed`].
pub(super) fn expect_equal(
    section: Tag,
    offset: u64,
    what: &'static str,
    found: u64,
    wanted: u64,
) -> Result<(), Error> {
    if found == wanted { Ok(()) } else { Err(Error::Malformed { section, offset, what, found, wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }

    #[test]
    fn errors_name_the_section_the_place_and_the_way_out() {
        let section = Tag(*b"TOKS");
        let cases = [
            (
                Error::Truncated { section, offset: 1536, need: 1600, have: 1550 },
                "TOKS at 1536 is cut off: 50 bytes are missing; use another copy of the file",
            ),
            (
                Error::Checksum { section, offset: 1536, stored: 0xab, computed: 0xcd },
                "TOKS at 1536 is damaged: its checksum is 00000000000000cd, 00000000000000ab was written; use another copy of the file",
            ),
            (
                Error::Magic { found: *b"GGUF\x03\0\0\0" },
                "not a state file of Backstitch: it begins with \"GGUF\\x03\\x00\\x00\\x00\"",
            ),
            (
                Error::Version { found: 1, wanted: 2 },
                "the file has format version 1, this release reads version 2; restore it with the release that saved it, or re-evaluate its text",
            ),
            (
                Error::Version { found: 3, wanted: 2 },
                "the file has format version 3, this release reads version 2; use a later release",
            ),
            (
                Error::fingerprint(&Fingerprint([0x11; 32]), &Fingerprint([0xfe; 32])),
                "the state belongs to model 11111111111111111111111111111111, not to fefefefefefefefefefefefefefefefe; open the model that it was saved with",
            ),
            (
                Error::Malformed { section, offset: 1540, what: "count", found: 9, wanted: 8 },
                "TOKS at 1540: count is 9, 8 wanted",
            ),
            (
                Error::TooLarge { what: "bytes of a section", value: 3 << 29, limit: 32 << 20 },
                "a section of 1.5 GiB, 32 MiB at most",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
