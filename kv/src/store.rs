//! Evaluated prompts on disk: a cache of prefixes that outlives the process and is shared by many.
//!
//! A prompt is cut into blocks of [`BLOCK_TOKENS`] tokens. What a model computed for a block is a *payload*: bytes that mean nothing
//! here. A [`Key`] names a prefix by the model, the shape of its cache and all tokens up to the end of a block, so that prompts with the
//! same beginning share its blocks, each stored once. Models that keep a state besides cells can only go on from a *resume
//! point*: a further payload after certain blocks.
//!
//! [`Store::longest`] finds the longest stored beginning of a prompt by a few look-ups in memory, without touching payloads;
//! [`Store::put`] stores what is new; [`Writer`] does that in a thread of its own, so that nobody who computes ever waits for a
//! disk. Blocks that were stored together are one immutable file, a *pack*. Several processes may use a folder at once and die at any
//! moment: a file gets its name when it is complete, its length is reserved before, and what dead writers leave behind is removed by the
//! next. A payload is checked when it is read; damaged files are removed, and the prompt is evaluated as if it had never been stored.
//!
//! ```
//! use backstitch_kv::Token;
//! use backstitch_kv::store::{Access, Entry, Key, Need, Store};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let store = Store::open(folder, Access::ReadWrite { budget: 1 << 30 })?;
//! let root = Key::root(&[1; 32], &[2; 32]); // which model, which cache
//! let prompt: Vec<Token> = (0..100).map(Token).collect();
//!
//! // Three whole blocks; what was computed for each, in as many pieces as there are.
//! let blocks = vec![vec![b"keys".into(), b"values".into()]; 3];
//! store.put(&Entry { root, tokens: (&prompt).into(), first: 0, blocks, resumes: vec![] })?;
//!
//! let found = store.longest(&root, &prompt, prompt.len() - 1, Need::Blocks)?;
//! assert_eq!(found.n_tokens, 96);
//! let (mut keys, mut values) = ([0; 4], [0; 6]);
//! found.blocks[2].read(&mut [&mut keys, &mut values])?;
//! assert_eq!(&values, b"values");
//! # Ok::<(), backstitch_kv::store::Error>(())
//! ```
//!
//! Every failure is an [`Error`] that may be reported and otherwise ignored. `docs/prompt-store.md` specifies files and keys byte by
//! byte, and says what is promised.

mod check;
mod error;
mod evict;
mod folder;
mod found;
mod index;
mod key;
mod pack;
mod prefix;
mod put;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{Finding, Listed, Problem, Report};
pub use error::{Doing, Error};
pub use evict::{Evicted, Prune};
pub use found::{Found, Payload, Why};
pub use key::{BLOCK_TOKENS, KEY_BYTES, Key};
pub use pack::Flaw;
pub use prefix::{Prefix, Unusable};
pub use put::{Entry, Pieces, Put};
pub use writer::{Writer, WriterStats};

use crate::ids::Token;
use core::sync::atomic::{AtomicU64, Ordering};
use folder::{Folder, PackName};
use found::OpenPack;
use index::{Index, Known};
use key::{blocks_of, chain};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::vec::Vec;

/// What a store may do, and how large it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Nothing is ever changed in the folder: neither files nor their times.
    ReadOnly,
    /// Packs are added, and removed so that all files together never have more than `budget` bytes.
    ReadWrite {
        /// The most bytes of all files.
        budget: u64,
    },
}

/// What a look-up needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Blocks alone: the model goes on from cells.
    Blocks,
    /// A resume point behind the last block: the model keeps states or windows too.
    ResumePoint,
}

/// What a store did since it was opened, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Packs in the folder.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Look-ups that found something of use.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Packs that were written.
    pub written: u64,
    /// Packs that were removed to make room.
    pub evicted: u64,
    /// Packs that were found damaged.
    pub damaged: u64,
}

/// A folder of evaluated prompts. Threads may share it; cloning gives another handle of the same store.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

/// What all handles of a store, and the files they found, share.
#[derive(Debug)]
struct Shared {
    folder: Folder,
    access: Access,
    index: Mutex<Index>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Store {
    /// Opens the store in the folder at `path`. With [`Access::ReadWrite`] the folder is made if it is not there, readable for this user
    /// alone, and what dead writers and damage left in it is removed, as far as the system allows.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made or listed.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Store, Error> {
        let folder = Folder::new(path.as_ref());
        if access != Access::ReadOnly {
            folder.make()?;
        }
        let shared = Shared { folder, access, index: Mutex::default(), counts: Counts::default() };
        let store = Store { shared: Arc::new(shared) };
        store.shared.index().refresh(&store.shared.folder)?;
        if access != Access::ReadOnly {
            // A folder that cannot be tidied can still be read; whoever stores will hear of it.
            let _ = store.tidy();
        }
        Ok(store)
    }

    /// Return true if the folder at `path` is a store: it holds the lock or files of one. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool, Error> {
        Folder::new(path.as_ref()).is_store()
    }

    /// The longest stored beginning of `tokens`, at most `max_tokens` of them. Pass one less than the prompt has if its last token's
    /// logits are wanted: those come from evaluating it.
    ///
    /// Reads heads of packs that are new since the last time and no payloads. What was found is opened, and marked as used unless the
    /// store is read-only.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed. Single files that are gone, damaged or unreadable make the beginning shorter.
    pub fn longest(
        &self,
        root: &Key,
        tokens: &[Token],
        max_tokens: usize,
        need: Need,
    ) -> Result<Found, Error> {
        let tokens = tokens.get(..max_tokens).unwrap_or(tokens);
        let keys = chain(root, tokens);
        let found = {
            let mut index = self.shared.index();
            index.refresh(&self.shared.folder)?;
            Lookup { shared: &self.shared, index: &mut index, files: HashMap::new() }
                .longest(root, &keys, tokens, need)
        };
        let counts = &self.shared.counts;
        count(if found.n_tokens > 0 { &counts.hits } else { &counts.misses });
        self.shared.touch(&found);
        Ok(found)
    }

    /// How many blocks from the start of `tokens` are stored in one piece, and so need not be given to [`put`](Self::put) again.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn n_stored(&self, root: &Key, tokens: &[Token]) -> Result<usize, Error> {
        let keys = chain(root, tokens);
        let mut index = self.shared.index();
        index.refresh(&self.shared.folder)?;
        Ok(index.stored(&keys, tokens))
    }

    /// Whether there is a resume point after the first `n_blocks` blocks of `tokens`.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be listed.
    pub fn has_resume_point(&self, root: &Key, tokens: &[Token], n_blocks: usize) -> Result<bool, Error> {
        let Some(prefix) = blocks_of(tokens).get(..n_blocks) else { return Ok(false) };
        let keys = chain(root, prefix.as_flattened());
        let mut index = self.shared.index();
        index.refresh(&self.shared.folder)?;
        Ok(keys.last().is_some_and(|key| index.resume(key).is_some()))
    }

    /// What the store did and holds, as of the last time it looked.
    pub fn stats(&self) -> Stats {
        let counts = &self.shared.counts;
        let [hits, misses, written, evicted, damaged] =
            [&counts.hits, &counts.misses, &counts.written, &counts.evicted, &counts.damaged]
                .map(|count| count.load(Ordering::Relaxed));
        let index = self.shared.index();
        let bytes = index.heads().map(|(_, head)| head.total).fold(0, u64::saturating_add);
        Stats { packs: index.packs.len() as u64, bytes, hits, misses, written, evicted, damaged }
    }
}

impl Shared {
    /// The index; a thread that panicked while it held it can have left it incomplete, never wrong about a file's bytes.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget.
    fn budget(&self) -> Result<u64, Error> {
        match self.access {
            Access::ReadOnly => Err(Error::ReadOnly),
            Access::ReadWrite { budget } => Ok(budget),
        }
    }

    /// Marks all packs of what was found as used now; if that fails they are merely evicted earlier.
    fn touch(&self, found: &Found) {
        if self.access == Access::ReadOnly {
            return;
        }
        let now = SystemTime::now();
        let mut payloads: Vec<_> =
            found.blocks.iter().chain(&found.resume).map(|payload| &payload.pack).collect();
        payloads.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for pack in payloads {
            let _ = self.folder.touch(&pack.name, &pack.file, now);
        }
    }

    /// Gives up a pack whose payload turned out to be damaged.
    fn remove_damaged(&self, name: &PackName) {
        self.give_up(&mut self.index(), name);
    }

    /// Removes a damaged pack if that is allowed; if it stays, it is not looked at again.
    fn give_up(&self, index: &mut Index, name: &PackName) {
        count(&self.counts.damaged);
        if self.access != Access::ReadOnly && self.folder.remove(name).is_ok() {
            index.forget(name);
        } else {
            index.mark(name, Known::Damaged);
        }
    }
}

/// A look-up: the index, and the files it opened.
struct Lookup<'a> {
    shared: &'a Arc<Shared>,
    index: &'a mut Index,
    files: HashMap<PackName, Arc<OpenPack>>,
}

impl Lookup<'_> {
    fn longest(&mut self, root: &Key, keys: &[Key], tokens: &[Token], need: Need) -> Found {
        let n = self.index.stored(keys, tokens);
        let mut why = self.index.why(root, keys, tokens, n);
        let mut blocks = Vec::with_capacity(n);
        for (i, (key, tokens)) in keys.iter().zip(blocks_of(tokens)).take(n).enumerate() {
            match self.block(key, tokens) {
                Some(payload) => blocks.push(payload),
                None => {
                    why = Why::Unreadable { at: i * BLOCK_TOKENS };
                    break;
                }
            }
        }
        let n_stored = blocks.len() * BLOCK_TOKENS;
        let mut resume = None;
        if need == Need::ResumePoint {
            let n = (1..=blocks.len()).rev().find(|n| {
                resume = keys.get(n - 1).and_then(|key| self.resume(key));
                resume.is_some()
            });
            blocks.truncate(n.unwrap_or(0));
        }
        Found { n_tokens: blocks.len() * BLOCK_TOKENS, n_stored, why, blocks, resume }
    }

    fn block(&mut self, key: &Key, tokens: &key::BlockTokens) -> Option<Payload> {
        let found = self.index.block(key, tokens)?;
        let (name, total, extent) = (found.pack, found.head.total, found.block.payload);
        Some(Payload { pack: self.open(name, total)?, extent })
    }

    fn resume(&mut self, key: &Key) -> Option<Payload> {
        let (name, head, resume) = self.index.resume(key)?;
        let (total, extent) = (head.total, resume.payload);
        Some(Payload { pack: self.open(name, total)?, extent })
    }

    /// Opens a pack, once.
    fn open(&mut self, name: PackName, total: u64) -> Option<Arc<OpenPack>> {
        if let Some(pack) = self.files.get(&name) {
            return Some(pack.clone());
        }
        let (file, len) = self.shared.folder.open(&name).ok()?;
        if len != total {
            self.shared.give_up(self.index, &name);
            return None;
        }
        let pack = Arc::new(OpenPack { store: self.shared.clone(), name, file });
        self.files.insert(name, pack.clone());
        Some(pack)
    }
}
