//! The prompt cache: evaluated prefixes on disk, which outlive the process and are shared by many.
//!
//! A prompt is cut into blocks of [`BLOCK_TOKENS`] tokens. What a model computed for a block is a
//! *payload*: bytes that mean nothing here. A [`Key`] names a prefix by the model, the shape of its
//! cache and all tokens up to the end of a block, so that prompts with the same beginning share its
//! blocks, each stored once. Models that keep a state besides cells can only go on from a *resume
//! point*: a further payload after certain blocks.
//!
//! [`PromptCache::longest`] finds the longest stored beginning of a prompt by a few look-ups in
//! memory, without touching payloads; [`PromptCache::put`] stores what is new; [`BackgroundWriter`]
//! does that in a thread of its own, so that nobody who computes ever waits for a disk. Blocks that
//! were stored together are one immutable file, an *entry*, which is a
//! [container](crate::storage::Container). Several processes may use a folder at once and die at
//! any moment: a file gets its name when it is complete, its length is reserved before, and what
//! dead writers leave behind is removed by the next. A payload is checked when it is read; damaged
//! entries are removed, and the prompt is evaluated as if it had never been stored.
//!
//! ```
//! use backstitch_kv::Token;
//! use backstitch_kv::storage::prompt_cache::{Access, EvaluatedPrefix, Key, Need, PromptCache};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let cache = PromptCache::open(folder, Access::ReadWrite { budget: 1 << 30 })?;
//! let root = Key::root(&[1; 32], &[2; 32]); // which model, which memory
//! let prompt: Vec<Token> = (0..100).map(Token).collect();
//!
//! // Three whole blocks; what was computed for each, in as many pieces as there are.
//! let blocks = vec![vec![b"keys".into(), b"values".into()]; 3];
//! let tokens = (&prompt).into();
//! cache.put(&EvaluatedPrefix { root, tokens, first: 0, blocks, resumes: vec![] })?;
//!
//! let found = cache.longest(&root, &prompt, prompt.len() - 1, Need::Blocks)?;
//! assert_eq!(found.n_tokens, 96);
//! let (mut keys, mut values) = ([0; 4], [0; 6]);
//! found.blocks[2].read(&mut [&mut keys, &mut values])?;
//! assert_eq!(&values, b"values");
//! # Ok::<(), backstitch_kv::storage::prompt_cache::Error>(())
//! ```
//!
//! Every failure is an [`Error`] that may be reported and otherwise ignored. `docs/prompt-cache.md`
//! specifies entries and keys, and says what is promised.

mod check;
mod entry;
mod evict;
mod folder;
mod found;
mod index;
mod key;
mod prefix;
mod put;
mod writer;

#[cfg(test)]
mod tests;

pub use super::error::Error;
pub use check::{EntryInfo, Finding, Problem, Report};
pub use entry::Pieces;
pub use evict::{Evicted, Prune};
pub use found::{Found, MAX_RESUME, Payload, Why};
pub use key::{BLOCK_TOKENS, KEY_BYTES, Key};
pub use prefix::Prefix;
pub use put::{EvaluatedPrefix, Put};
pub use writer::{BackgroundWriter, WriterStats};

use super::container::Section;
use super::disk::{Disk, RealDisk};
use crate::ids::Token;
use entry::{Entry, EntryName};
use folder::Folder;
use found::OpenEntry;
use index::{Index, Useless};
use key::{blocks_of, chain};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Vec;

/// The time that opening a prompt cache waits for the lock before it leaves tidying to others. A
/// process that is being started holds the locks of the one that starts it for a moment.
const TIDY_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 100 });

/// The most damaged files that are named between two looks; further ones are only counted.
const MOST_NAMED: usize = 64;

/// Rights of a prompt cache in its folder, and how large that may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Nothing is ever changed in the folder: neither files nor their times.
    ReadOnly,
    /// Entries are added, and removed so that all files together never have more than `budget`
    /// bytes.
    ReadWrite {
        /// The most bytes of all files.
        budget: u64,
    },
}

/// Payloads that a look-up needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Blocks alone: the model goes on from cells.
    Blocks,
    /// A resume point behind the last block: the model keeps states or windows too.
    ResumePoint,
}

/// Work of a prompt cache since it was opened, and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Entries in the folder.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Look-ups that found something of use.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Entries that were written.
    pub written: u64,
    /// Entries that were removed to make room.
    pub evicted: u64,
    /// Entries that were found damaged.
    pub damaged: u64,
}

/// A folder of evaluated prompts. Threads may share it; cloning gives another handle of the same
/// cache.
#[derive(Clone, Debug)]
pub struct PromptCache {
    shared: Arc<Shared>,
}

/// State that all handles of a cache, and the files they found, share.
#[derive(Debug)]
struct Shared {
    folder: Folder,
    /// The most bytes of all files; `None` if nothing is to be changed.
    budget: Option<u64>,
    index: Mutex<Index>,
    /// Counts of what was done; sizes are the index's.
    counts: Mutex<Stats>,
    /// The files that were found damaged since somebody asked, at most [`MOST_NAMED`].
    damaged: Mutex<Vec<PathBuf>>,
}

impl PromptCache {
    /// Open the prompt cache in the folder at `path`. With [`Access::ReadWrite`] the folder is made
    /// if it is not there, readable for this user alone, and what dead writers, older releases and
    /// damage left in it is removed, as far as the system allows.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be made or listed.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        Self::open_on(Arc::new(RealDisk), path, access)
    }

    /// Open the prompt cache in a folder of `disk`, as [`PromptCache::open`].
    ///
    /// # Errors
    /// As [`PromptCache::open`].
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        let folder = Folder::new(disk, path.as_ref());
        let budget = match access {
            Access::ReadOnly => None,
            Access::ReadWrite { budget } => Some(budget),
        };
        if budget.is_some() {
            folder.make()?;
        }
        let shared = Shared {
            folder,
            budget,
            index: Mutex::default(),
            counts: Mutex::default(),
            damaged: Mutex::default(),
        };
        let cache = Self { shared: Arc::new(shared) };
        cache.shared.index().refresh(&cache.shared.folder)?;
        if budget.is_some() {
            // What dead writers and damage left is removed. A folder that cannot be tidied can
            // still be read; whoever stores will hear of it.
            let _ = cache.evict_within(TIDY_WAIT, Prune::ToBytes(u64::MAX));
        }
        Ok(cache)
    }

    /// Return true if the folder at `path` is a prompt cache: it holds the lock or files of one.
    /// Changes nothing.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool, Error> {
        Folder::new(Arc::new(RealDisk), path.as_ref()).is_cache()
    }

    /// Find the longest stored beginning of `tokens`, at most `max_tokens` of them. Pass one less
    /// than the prompt has if its last token's logits are wanted: those come from evaluating it.
    ///
    /// Reads entries that are new since the last time, without their payloads. What was found is
    /// opened, and marked as used unless the cache is read-only.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed. Single files that are gone, damaged or
    /// unreadable make the beginning shorter.
    pub fn longest(
        &self,
        root: &Key,
        tokens: &[Token],
        max_tokens: usize,
        need: Need,
    ) -> Result<Found, Error> {
        let tokens = tokens.get(..max_tokens).unwrap_or(tokens);
        let keys = chain(root, tokens);
        let shared = &self.shared;
        let mut index = shared.refreshed()?;
        let n = index.stored(&keys, tokens);
        let mut why = index.why(root, &keys, tokens, n);
        let mut blocks = Vec::with_capacity(n);
        for (key, tokens) in keys.iter().zip(blocks_of(tokens)).take(n) {
            let place = index.block(key, tokens).map(|(entry, block)| (entry.clone(), block.payload));
            let Some(payload) = shared.payload(&mut index, place, blocks.last()) else {
                why = Why::Unreadable { at: blocks.len() * BLOCK_TOKENS };
                break;
            };
            blocks.push(payload);
        }
        let n_stored = blocks.len() * BLOCK_TOKENS;
        let mut resume = None;
        while need == Need::ResumePoint && resume.is_none() && !blocks.is_empty() {
            let place =
                index.resume(&keys[blocks.len() - 1]).map(|(entry, section)| (entry.clone(), *section));
            resume = shared.payload(&mut index, place, blocks.last());
            blocks.truncate(blocks.len() - usize::from(resume.is_none()));
        }
        drop(index);
        let found = Found { n_tokens: blocks.len() * BLOCK_TOKENS, n_stored, why, blocks, resume };
        shared.count(|stats| if found.n_tokens > 0 { stats.hits += 1 } else { stats.misses += 1 });
        if shared.budget.is_some() {
            let payloads = found.blocks.iter().chain(&found.resume);
            shared.folder.touch(&payloads.map(|payload| payload.entry.name).collect());
        }
        Ok(found)
    }

    /// Return how many blocks from the start of `tokens` are stored in one piece, and so need not
    /// be given to [`put`](Self::put) again.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed.
    pub fn n_stored(&self, root: &Key, tokens: &[Token]) -> Result<usize, Error> {
        let keys = chain(root, tokens);
        Ok(self.shared.refreshed()?.stored(&keys, tokens))
    }

    /// Return after how many blocks of `tokens` there are resume points, ascending.
    ///
    /// # Errors
    /// [`Error::File`] if the folder cannot be listed.
    pub fn resume_points(&self, root: &Key, tokens: &[Token]) -> Result<Vec<usize>, Error> {
        let (keys, index) = (chain(root, tokens), self.shared.refreshed()?);
        let stored = (1..).zip(&keys).filter(|(_, key)| index.resume(key).is_some());
        Ok(stored.map(|(n_blocks, _)| n_blocks).collect())
    }

    /// Take the paths of the entries that were found damaged since this was asked before. They have
    /// been removed already, if this cache may write. Of many between two looks, 64 are named;
    /// [`Stats::damaged`] counts all.
    pub fn take_damaged(&self) -> Vec<PathBuf> {
        core::mem::take(&mut *self.shared.damaged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Return how many entries were found damaged, without waiting for other threads that use the
    /// cache.
    pub fn n_damaged(&self) -> u64 {
        self.shared.count(|stats| stats.damaged)
    }

    /// Return the counts of what was done, and the size as of the last look at the folder.
    pub fn stats(&self) -> Stats {
        let index = self.shared.index();
        let bytes = index.whole().map(|entry| entry.total).fold(0, u64::saturating_add);
        Stats { entries: index.entries.len() as u64, bytes, ..self.shared.count(|stats| *stats) }
    }
}

impl Shared {
    /// Lock the index; a thread that panicked while it held it can have left it incomplete, never
    /// wrong about a file's bytes.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock the index and bring it up to date.
    fn refreshed(&self) -> Result<MutexGuard<'_, Index>, Error> {
        let mut index = self.index();
        index.refresh(&self.folder)?;
        Ok(index)
    }

    /// Change or read the counts.
    fn count<T>(&self, change: impl FnOnce(&mut Stats) -> T) -> T {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Give up an entry whose payload turned out to be damaged: remove it if that is allowed; if it
    /// stays, it is not looked at again.
    fn give_up(&self, index: &mut Index, name: &EntryName) {
        self.note_damaged(name);
        if self.budget.is_some() && self.folder.remove(name).is_ok() {
            index.entries.remove(name);
        } else {
            index.entries.insert(*name, Err(Useless::Damaged));
        }
        index.rebuild();
    }

    /// Count an entry as damaged, and remember its path.
    fn note_damaged(&self, name: &EntryName) {
        self.count(|stats| stats.damaged += 1);
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.len() < MOST_NAMED {
            damaged.push(self.folder.path_of(name));
        }
    }

    /// Return a payload of an entry, which is opened unless `last` is of the same one.
    fn payload(
        self: &Arc<Self>,
        index: &mut Index,
        place: Option<(Arc<Entry>, Section)>,
        last: Option<&Payload>,
    ) -> Option<Payload> {
        let (wanted, section) = place?;
        if let Some(last) = last.filter(|last| last.entry.name == wanted.name) {
            return Some(Payload { entry: last.entry.clone(), section });
        }
        let (name, file) = (wanted.name, self.folder.open(&wanted.name).ok()?);
        if file.len().ok()? != wanted.total {
            self.give_up(index, &name);
            return None;
        }
        Some(Payload { entry: Arc::new(OpenEntry { cache: self.clone(), name, file }), section })
    }
}
