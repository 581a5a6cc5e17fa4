//! What a look-up finds: open files, from which payloads are read and checked on the way.

use super::Shared;
use super::error::Error;
use super::folder::{Folder, PackName};
use super::pack::Extent;
use core::fmt;
use core::hash::Hasher;
use std::fs::File;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use twox_hash::XxHash3_64;

/// Bytes that are read and then checked while they are still in the processor's cache.
const STEP: usize = 128 << 10;

/// The longest stored beginning of a prompt.
///
/// It holds its files open: whatever happens to the folder, what was found stays readable.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Tokens that need not be evaluated: a multiple of [`BLOCK_TOKENS`](super::BLOCK_TOKENS), 0 if nothing is of use.
    pub n_tokens: usize,
    /// Tokens whose blocks are stored, counted from the start of the prompt. More than `n_tokens` if a resume point was asked for, and
    /// the last one stands before.
    pub n_stored: usize,
    /// Why `n_stored` is not more.
    pub why: Why,
    /// The payload of each block of the first `n_tokens`.
    pub blocks: Vec<Payload>,
    /// The payload of the resume point after `n_tokens`, if one was asked for. `n_tokens` is 0 without it.
    pub resume: Option<Payload>,
}

/// Why no longer beginning of a prompt was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// All whole blocks of the prompt, as far as it was asked for, are stored.
    Whole,
    /// Nothing is stored for this model and cache.
    NothingStored,
    /// What is stored differs from the prompt at this token, counted from 0.
    Differs {
        /// The first token that is different in every stored prompt.
        at: usize,
    },
    /// What is stored agrees with the prompt, but ends before this token, counted from 0.
    Ends {
        /// The first token that is not stored.
        at: usize,
    },
    /// It was stored, and later parts of the same prompt still are, but the block that begins at this token was evicted or damaged.
    Gone {
        /// The first token of the block.
        at: usize,
    },
    /// The file that holds the block beginning at this token could not be opened.
    Unreadable {
        /// The first token of the block.
        at: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "all whole blocks of the prompt are stored"),
            Self::NothingStored => write!(f, "nothing is stored for this model and cache"),
            Self::Differs { at } => write!(f, "stored prompts differ at token {at}"),
            Self::Ends { at } => write!(f, "what is stored ends at token {at}"),
            Self::Gone { at } => write!(f, "the block at token {at} was evicted"),
            Self::Unreadable { at } => write!(f, "the block at token {at} could not be read"),
        }
    }
}

/// A pack that was found and opened.
#[derive(Debug)]
pub(super) struct OpenPack {
    pub store: Arc<Shared>,
    pub name: PackName,
    pub file: File,
}

/// Bytes in the store.
#[derive(Clone, Debug)]
pub struct Payload {
    pub(super) pack: Arc<OpenPack>,
    pub(super) extent: Extent,
}

impl Payload {
    /// How many bytes there are.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.extent.len
    }

    /// Reads all of it into `pieces`, one after the other, and checks it.
    ///
    /// # Errors
    /// [`Error::Pieces`] if the pieces together are not as long as the payload; nothing is read then. [`Error::Io`] and [`Error::Payload`]
    /// if the bytes cannot be read or are not those that were stored: the pieces hold anything then, and a store that may write
    /// has removed the file, so that another look-up finds what is left.
    pub fn read(&self, pieces: &mut [&mut [u8]]) -> Result<(), Error> {
        let found = pieces.iter().map(|piece| piece.len() as u64).sum();
        if found != self.extent.len {
            return Err(Error::Pieces { found, wanted: self.extent.len });
        }
        self.fill(pieces).inspect_err(|error| self.pack.blame(error))
    }

    fn fill(&self, pieces: &mut [&mut [u8]]) -> Result<(), Error> {
        let OpenPack { store, name, file } = &*self.pack;
        let Extent { offset, check: stored, .. } = self.extent;
        let mut at = offset;
        let mut hasher = XxHash3_64::new();
        for step in pieces.iter_mut().flat_map(|piece| piece.chunks_mut(STEP)) {
            store.folder.read(name, file, step, at)?;
            hasher.write(step);
            at += step.len() as u64;
        }
        let computed = hasher.finish();
        if computed == stored {
            return Ok(());
        }
        Err(Error::Payload { path: store.folder.path_of(name).into(), offset, stored, computed })
    }
}

/// XXH3-64 of `len` bytes of a file.
pub(super) fn checksum_at(
    folder: &Folder,
    name: &PackName,
    file: &File,
    at: u64,
    len: u64,
) -> Result<u64, Error> {
    let mut hasher = XxHash3_64::new();
    let mut step = vec![0; usize::try_from(len).map_or(STEP, |len| len.min(STEP))];
    let (mut at, end) = (at, at.saturating_add(len));
    while at < end {
        let n = usize::try_from(end - at).map_or(STEP, |rest| rest.min(STEP));
        let step = step.get_mut(..n).unwrap_or_default();
        folder.read(name, file, step, at)?;
        hasher.write(step);
        at += n as u64;
    }
    Ok(hasher.finish())
}

impl OpenPack {
    /// Removes the file if its bytes are to blame for the error, rather than the way to them.
    fn blame(&self, error: &Error) {
        let damaged = match error {
            Error::Payload { .. } => true,
            Error::Io { error, .. } => error.kind() == std::io::ErrorKind::UnexpectedEof,
            _ => false,
        };
        if damaged {
            self.store.remove_damaged(&self.name);
        }
    }
}
