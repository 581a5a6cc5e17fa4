//! Results of a look-up: open files, from which payloads are read and checked on the way.

use super::Shared;
use super::entry::EntryName;
use super::key::BLOCK_TOKENS;
use crate::storage::container::{Section, Source};
use crate::storage::disk::DiskFile;
use crate::storage::error::Error;
use core::fmt;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

/// The most bytes of a resume point. All of it is read into memory of its own, so no larger one is
/// stored.
pub const MAX_RESUME: u64 = 1 << 30;

/// The longest stored beginning of a prompt.
///
/// It holds its files open: whatever happens to the folder, what was found stays readable.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Tokens that need not be evaluated: a multiple of [`BLOCK_TOKENS`](super::BLOCK_TOKENS), 0 if
    /// nothing is of use.
    pub n_tokens: usize,
    /// Tokens whose blocks are stored, counted from the start of the prompt. More than `n_tokens`
    /// if a resume point was asked for, and the last one stands before.
    pub n_stored: usize,
    /// Why `n_stored` is not more.
    pub why: Why,
    /// The payload of each block of the first `n_tokens`.
    pub blocks: Vec<Payload>,
    /// The payload of the resume point after `n_tokens`, if one was asked for. `n_tokens` is 0
    /// without it.
    pub resume: Option<Payload>,
}

/// Why no longer beginning of a prompt was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// All whole blocks of the prompt, as far as it was asked for, are stored.
    AllStored,
    /// Nothing is stored for this model and cache.
    NothingStored,
    /// Stored prompts differ from the prompt at this token, counted from 0.
    Differs {
        /// The first token that is different in every stored prompt.
        at: usize,
    },
    /// Stored prompts agree with the prompt, but end before this token, counted from 0.
    Ends {
        /// The first token that is not stored.
        at: usize,
    },
    /// It was stored, and later parts of the same prompt still are, but the block that begins at
    /// this token was evicted or damaged.
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

impl Found {
    /// Return the number of tokens to look for again after reading a payload failed with `error`.
    /// A damaged entry is out of the way already. One that the system did not let be read stays, so
    /// that the prefix has to end before its first block; for other errors, before the last block.
    pub fn retry_len(&self, error: &Error) -> usize {
        if error.is_damage() {
            return self.n_tokens;
        }
        let is_it = |Payload { entry, .. }: &Payload| matches!(error, Error::Entry { path, .. } if **path == entry.cache.folder.path_of(&entry.name));
        let last = self.blocks.len().saturating_sub(1);
        self.blocks.iter().position(is_it).unwrap_or(last) * BLOCK_TOKENS
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllStored => write!(f, "all whole blocks of the prompt are stored"),
            Self::NothingStored => write!(f, "nothing is stored for this model and cache"),
            Self::Differs { at } => write!(f, "stored prompts differ at token {at}"),
            Self::Ends { at } => write!(f, "what is stored ends at token {at}"),
            Self::Gone { at } => write!(f, "the block at token {at} was evicted"),
            Self::Unreadable { at } => write!(f, "the block at token {at} could not be read"),
        }
    }
}

/// An entry that was found and opened.
pub(super) struct OpenEntry {
    pub cache: Arc<Shared>,
    pub name: EntryName,
    pub file: Box<dyn DiskFile>,
}

impl fmt::Debug for OpenEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// Bytes in a prompt cache: a section of an entry that stays open.
#[derive(Clone, Debug)]
pub struct Payload {
    pub(super) entry: Arc<OpenEntry>,
    pub(super) section: Section,
}

impl Payload {
    /// Return how many bytes there are.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.section.raw_len
    }

    /// Read all of it into `pieces`, one after the other, and check it.
    ///
    /// # Errors
    /// [`Error::Request`] if the pieces together are not as long as the payload; nothing is read
    /// then. [`Error::Entry`] if the bytes cannot be read or are not those that were stored: the
    /// pieces hold anything then, and a cache that may write has removed a file that is damaged, so
    /// that another look-up finds what is left.
    pub fn read(&self, pieces: &mut [&mut [u8]]) -> Result<(), Error> {
        let found = pieces.iter().map(|piece| piece.len() as u64).sum();
        if found != self.len() {
            let what = "bytes of a block, which belongs to another cache";
            return Err(Error::Request { what, found, wanted: self.len() });
        }
        self.of_entry(self.source().read_into(&self.section, pieces))
    }

    /// Read all of it into memory of its own, at most [`MAX_RESUME`]: a file can be long without
    /// being full, so its length justifies no allocation.
    ///
    /// # Errors
    /// [`Error::Entry`], as [`Payload::read`], and for a longer payload.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        self.of_entry(self.source().read(&self.section, MAX_RESUME)).map(|bytes| bytes.into_owned())
    }

    fn source(&self) -> Source<'_> {
        Source::Device(&*self.entry.file)
    }

    /// Name the entry in an error, and remove it if its bytes are to blame.
    fn of_entry<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        let OpenEntry { cache, name, .. } = &*self.entry;
        cache.folder.in_entry(name, read).inspect_err(|error| {
            if error.is_damage() {
                cache.give_up(&mut cache.index(), name);
            }
        })
    }
}
