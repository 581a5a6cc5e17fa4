//! Errors of reading and writing files of llama.cpp.

use alloc::boxed::Box;
use backstitch_kv::{Pos, Size};
use core::fmt;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Section {
    /// Magic number, version, architecture.
    Header,
    /// The tokens.
    Tokens,
    /// Positions and sequences of the cells of a cache, which is numbered in the order of the file.
    Cells(u8),
    /// Keys of a cache.
    Keys(u8),
    /// Values of a cache.
    Values(u8),
    /// Positions and sequences of recurrent states.
    States,
    /// R: what convolutions and token shifts carry.
    R,
    /// S: what scans carry.
    S,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::Header => f.write_str("header"),
            Section::Tokens => f.write_str("tokens"),
            Section::Cells(cache) => write!(f, "cells of cache {cache}"),
            Section::Keys(cache) => write!(f, "keys of cache {cache}"),
            Section::Values(cache) => write!(f, "values of cache {cache}"),
            Section::States => f.write_str("recurrent states"),
            Section::R => f.write_str("recurrent R"),
            Section::S => f.write_str("recurrent S"),
        }
    }
}

/// Values that a number should have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This.
    Exactly(u64),
    /// At least the first, less than the second.
    Between(u64, u64),
    /// Something that takes words.
    Text(&'static str),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Exactly(n) => write!(f, "{n}"),
            Wanted::Between(least, end) => write!(f, "{least} or more and less than {end}"),
            Wanted::Text(text) => f.write_str(text),
        }
    }
}

/// Why a file cannot be read, or cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file ends too early.
    #[error(
        "{section}: the file ends in {field} at byte {offset}; {} are missing",
        Size(.need.saturating_sub(*.have))
    )]
    Truncated {
        /// Part of the file.
        section: Section,
        /// Field that should have followed.
        field: &'static str,
        /// The byte at which it should begin.
        offset: u64,
        /// Bytes that it needs.
        need: u64,
        /// Bytes that there are.
        have: u64,
    },
    /// Bytes follow what is known.
    #[error(
        "{} from byte {offset} on belong to nothing; the file is of another model or version",
        Size(*.n_bytes)
    )]
    Trailing {
        /// The first of them.
        offset: u64,
        /// Number of them.
        n_bytes: u64,
    },
    /// A number is not what the model, or reason, wants.
    #[error("{section}: {field} at byte {offset} is {found}, wanted {wanted}")]
    Field {
        /// Part of the file.
        section: Section,
        /// Name of the number.
        field: &'static str,
        /// Its first byte.
        offset: u64,
        /// Number that is there.
        found: i128,
        /// The value that it should be.
        wanted: Wanted,
    },
    /// The session is of another architecture.
    #[error("header: the session at byte {offset} is of architecture {found:?}, the model of {wanted:?}")]
    Architecture {
        /// The first byte of its name.
        offset: u64,
        /// Its name.
        found: Box<str>,
        /// Name of the model's.
        wanted: Box<str>,
    },
    /// The positions of a sequence do not follow each other.
    #[error("cache {cache}: sequence {sequence} has position {found} where {wanted} should be")]
    Hole {
        /// The cache.
        cache: u8,
        /// The sequence.
        sequence: u32,
        /// A position that is there.
        found: Pos,
        /// The one that should be in its place.
        wanted: Pos,
    },
    /// Cells that the next token sees are not there.
    #[error(
        "cache {cache}: sequence {sequence} is whole from position {found} on, but its next token sees \
         {wanted}; re-evaluate it"
    )]
    Window {
        /// The cache.
        cache: u8,
        /// The sequence.
        sequence: u32,
        /// The first position from which on none is missing.
        found: Pos,
        /// The first that is seen.
        wanted: Pos,
    },
    /// Layers disagree about where a sequence ends.
    #[error("{section}: sequence {sequence} ends with {}, elsewhere with {}", end(*.found), end(*.wanted))]
    Ends {
        /// Which part disagrees with the first cache.
        section: Section,
        /// The sequence.
        sequence: u32,
        /// Its last position there; `None`: it holds nothing.
        found: Option<Pos>,
        /// Its last position in the first cache.
        wanted: Option<Pos>,
    },
    /// Sequences share cells in a way that only copies of most of them could show.
    #[error("cache {cache}: shared cells need {n_blocks} blocks, more than {limit}")]
    Scattered {
        /// The cache.
        cache: u8,
        /// Blocks of cells that it would take.
        n_blocks: u64,
        /// The most that so many cells and sequences justify.
        limit: u64,
    },
    /// Files of this kind cannot be read or written for this model, or cannot hold this.
    #[error("llama.cpp's files are not supported for {what}")]
    Unsupported {
        /// Kind of model or content.
        what: &'static str,
    },
    /// The layout contradicts itself.
    #[error("the layout's {what} contradict each other")]
    Layout {
        /// Parts that do not fit each other.
        what: &'static str,
    },
    /// The content to be written is not of the layout's shape, or is incomplete.
    #[error("what is to be written does not fit the model: {what}")]
    Content {
        /// Part that does not fit.
        what: &'static str,
    },
    /// The allocator refused.
    #[error("no memory for {}; free some", Size(*.bytes))]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
}

/// Return the end of a sequence in words.
fn end(last: Option<Pos>) -> impl fmt::Display {
    fmt::from_fn(move |f| match last {
        Some(pos) => write!(f, "position {pos}"),
        None => f.write_str("nothing"),
    })
}

impl From<backstitch_kv::Error> for Error {
    fn from(error: backstitch_kv::Error) -> Self {
        match error {
            backstitch_kv::Error::OutOfMemory { bytes } => Error::OutOfMemory { bytes },
            _ => Error::Content { what: "its snapshot" },
        }
    }
}
