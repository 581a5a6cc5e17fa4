//! Storing: what is missing becomes an entry, for which room is reserved before and which gets its
//! name at the end.

use super::entry::{self, BLOCK, EntryName, MAX_PAYLOADS, Pieces, RESUME};
use super::evict::Prune;
use super::folder::{LOCK_WAIT, Part};
use super::found::MAX_RESUME;
use super::index::Index;
use super::key::{BlockTokens, Key, blocks_of, chain};
use super::{PromptCache, Shared};
use crate::ids::Token;
use crate::storage::container::{container_bytes, expect_at_most, len_of};
use crate::storage::disk::FileWriter;
use crate::storage::error::Error;
use crate::storage::header::Tag;
use core::ops::Range;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::vec::Vec;

/// The number of times that writing starts again because others changed the same prompt's blocks
/// meanwhile.
const TRIES: usize = 4;

/// An evaluated prefix of a prompt, or a part of one, that is to be stored.
///
/// It becomes as many entries as there are runs of blocks that are not stored yet.
#[derive(Clone, Debug)]
pub struct EvaluatedPrefix<'a> {
    /// The key of the empty prefix, which stands for model and memory.
    pub root: Key,
    /// The prompt from its beginning; tokens behind the last block that is given do not matter.
    pub tokens: Cow<'a, [Token]>,
    /// The first block that is given, see [`PromptCache::n_stored`]; all before it must be stored.
    pub first: usize,
    /// The payloads of the blocks from `first` on. Those that are stored already are skipped.
    pub blocks: Vec<Pieces<'a>>,
    /// Resume points: after how many blocks of the prompt, at least one and at most `first +
    /// blocks.len()`, and the payload.
    pub resumes: Vec<(usize, Pieces<'a>)>,
}

impl EvaluatedPrefix<'_> {
    /// Return the bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        let resumes = self.resumes.iter().map(|(_, pieces)| pieces);
        self.blocks.iter().chain(resumes).map(|pieces| len_of(pieces)).fold(0, u64::saturating_add)
    }

    /// Copy all bytes, so that it can be stored elsewhere and later.
    pub fn into_owned(self) -> EvaluatedPrefix<'static> {
        let own = |pieces: Pieces<'_>| -> Pieces<'static> {
            pieces.into_iter().map(|piece| Cow::Owned(piece.into_owned())).collect()
        };
        EvaluatedPrefix {
            root: self.root,
            tokens: Cow::Owned(self.tokens.into_owned()),
            first: self.first,
            blocks: self.blocks.into_iter().map(own).collect(),
            resumes: self.resumes.into_iter().map(|(after, pieces)| (after, own(pieces))).collect(),
        }
    }

    /// Return the number of blocks of the prompt that the prefix reaches to.
    fn end(&self) -> Result<usize, Error> {
        let end = self.first.saturating_add(self.blocks.len());
        let whole = blocks_of(&self.tokens).len();
        let mut places = self.resumes.iter().map(|(after, _)| *after);
        let (what, found, wanted) = match places.find(|after| *after == 0 || *after > end) {
            _ if end > whole => ("more blocks than the tokens fill", end, whole),
            Some(after) => ("a resume point that is not behind one of the blocks", after, end),
            None => return Ok(end),
        };
        Err(Error::Request { what, found: found as u64, wanted: wanted as u64 })
    }
}

/// Result of storing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Entries that were written; 0 if all was stored already.
    pub entries: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An entry that is to be written.
#[derive(PartialEq)]
struct Job {
    /// Blocks of the prompt; for a resume point alone, none before the block that follows it.
    blocks: Range<usize>,
    /// Resume points: after how many blocks of the prompt.
    resumes: BTreeSet<usize>,
}

/// A prefix, and what is computed from it once.
struct Task<'a> {
    prefix: &'a EvaluatedPrefix<'a>,
    /// Tokens of all blocks that the prefix reaches to.
    blocks: &'a [BlockTokens],
    /// Key of the first `n` blocks at `n`; the root at 0.
    keys: Vec<Key>,
}

impl PromptCache {
    /// Store what of `prefix` is not stored yet. Evicts the least recently used entries, so that
    /// the folder never holds more than its budget, not even while this writes. Does not sync:
    /// after a loss of power what was stored last may be gone or damaged, which is noticed when it
    /// is read.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Request`] if the prefix does not fit together;
    /// [`Error::TooLarge`] for a resume point of more than [`MAX_RESUME`] bytes; [`Error::Gap`],
    /// [`Error::Raced`] if blocks before it are gone or others interfere; [`Error::OverBudget`],
    /// [`Error::NoRoom`]; [`Error::Locked`]; [`Error::File`], for example on a full disk.
    pub fn put(&self, prefix: &EvaluatedPrefix<'_>) -> Result<Put, Error> {
        let budget = self.shared.budget.ok_or(Error::ReadOnly)?;
        let blocks = &blocks_of(&prefix.tokens)[..prefix.end()?];
        let resumes = prefix.resumes.iter().map(|(_, pieces)| len_of(pieces)).max();
        expect_at_most("bytes of a resume point", resumes.unwrap_or(0), MAX_RESUME)?;
        let keys = [prefix.root].into_iter().chain(chain(&prefix.root, blocks.as_flattened())).collect();
        let task = Task { prefix, blocks, keys };
        let mut done = Put::default();
        let mut tries = 0;
        let mut before = None;
        loop {
            let job = task.next_job(&*self.shared.refreshed()?)?;
            let Some(job) = job else { return Ok(done) };
            match self.shared.write_entry(&task, &job, budget)? {
                Some(bytes) => {
                    self.shared.count(|stats| stats.written += 1);
                    done.entries += 1;
                    done.blocks += job.blocks.len() as u64;
                    done.bytes += bytes;
                }
                None => tries += 1,
            }
            // What was written and yet is missing again is evicted, or damaged, as fast as it is
            // written.
            tries += usize::from(before.as_ref() == Some(&job.blocks));
            before = Some(job.blocks);
            if tries >= TRIES {
                return Err(Error::Raced { folder: self.shared.folder.path() });
            }
        }
    }
}

impl Task<'_> {
    /// Return the next entry to write: the first run of blocks that are not stored, or else a
    /// resume point.
    fn next_job(&self, index: &Index) -> Result<Option<Job>, Error> {
        let start = index.stored(&self.keys[1..], self.blocks.as_flattened());
        if start < self.prefix.first {
            return Err(Error::Gap { block: start as u64 });
        }
        let is_missing = |i: &usize| index.block(&self.keys[i + 1], &self.blocks[*i]).is_none();
        let n_missing = (start..self.blocks.len()).take(MAX_PAYLOADS).take_while(is_missing).count();
        let resumes = self.prefix.resumes.iter().map(|(after, _)| *after);
        let mut resumes: BTreeSet<usize> =
            resumes.filter(|after| index.resume(&self.keys[*after]).is_none()).collect();
        if n_missing == 0 {
            let first = resumes.first();
            return Ok(first.map(|&after| Job { blocks: after..after, resumes: BTreeSet::from([after]) }));
        }
        let end = start + n_missing;
        resumes.retain(|after| (start..=end).contains(after));
        Ok(Some(Job { blocks: start..end, resumes }))
    }

    /// Return the payloads of the job, with their tags and indices in the entry.
    fn payloads<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = (Tag, u64, &'a Pieces<'a>)> {
        let Range { start, end } = job.blocks;
        // A resume point alone may stand before the first block that is given.
        let given = |block: usize| block.saturating_sub(self.prefix.first);
        let blocks = (0..).zip(&self.prefix.blocks[given(start)..given(end)]);
        let blocks = blocks.map(|(index, pieces)| (BLOCK, index, pieces));
        let given = |after: &usize| self.prefix.resumes.iter().find(|(place, _)| place == after);
        let resumes = job.resumes.iter().filter_map(given);
        blocks.chain(resumes.map(move |(after, pieces)| (RESUME, (after - start) as u64, pieces)))
    }

    /// Return the content of `PRFX`.
    fn description(&self, job: &Job) -> Vec<u8> {
        // The tokens of 2^32 blocks fit no memory.
        let n_before = job.blocks.start as u32;
        entry::prefix(&self.keys[job.blocks.start], n_before, &self.blocks[job.blocks.clone()])
    }

    /// Return the entries that hold any of the prompt: making room for its end must not cost its
    /// beginning, nor the reverse.
    fn entries(&self, index: &Index) -> BTreeSet<EntryName> {
        let block = |key| index.at(key).map(|(entry, _)| entry.name);
        let resume = |key| index.resume(key).map(|(entry, _)| entry.name);
        self.keys[1..].iter().flat_map(|key| [block(key), resume(key)]).flatten().collect()
    }
}

impl Shared {
    /// Write and publish an entry, and return its bytes; `None` if others changed the same prompt's
    /// blocks meanwhile.
    fn write_entry(&self, task: &Task<'_>, job: &Job, budget: u64) -> Result<Option<u64>, Error> {
        let description = task.description(job);
        let payloads = task.payloads(job).map(|(.., pieces)| len_of(pieces));
        let need = container_bytes(payloads.chain([description.len() as u64])).unwrap_or(u64::MAX);
        let part = self.reserve(task, need, budget)?;
        let written = self.write(&part, task, job, &description);
        let published = written.and_then(|name| self.publish(&part, task, job, &name));
        if !matches!(published, Ok(true)) {
            self.folder.discard(&part);
        }
        Ok(published?.then_some(need))
    }

    /// Evict until there is room for `need` bytes, and reserve them.
    fn reserve(&self, task: &Task<'_>, need: u64, budget: u64) -> Result<Part, Error> {
        if need > budget {
            return Err(Error::OverBudget { folder: self.folder.path(), need, budget });
        }
        let lock = self.folder.lock(LOCK_WAIT)?;
        let mut index = self.index();
        let listing = index.list(&self.folder)?;
        let keep = task.entries(&index);
        // Other processes must not evict what this one builds on.
        self.folder.touch(&keep);
        let (evicted, failed) = self.evict(&lock, &mut index, listing, keep, Prune::ToBytes(budget - need));
        let kept = evicted.bytes;
        if kept > budget - need {
            // Of several reasons, the one that somebody can do something about.
            return Err(failed.unwrap_or(Error::NoRoom { folder: self.folder.path(), need, kept, budget }));
        }
        self.folder.reserve(&lock, need)
    }

    /// Write the container of an entry, and return the name that the entry gets.
    fn write(&self, part: &Part, task: &Task<'_>, job: &Job, description: &[u8]) -> Result<EntryName, Error> {
        let mut out = FileWriter::new(&*part.file, 0);
        let written = entry::write(&mut out, &task.prefix.root, description, task.payloads(job));
        let check = out.end(written, &part.path)?;
        Ok(EntryName { key: task.keys[job.blocks.end], check })
    }

    /// Give a written entry its name, unless others changed the same prompt's blocks meanwhile.
    fn publish(&self, part: &Part, task: &Task<'_>, job: &Job, name: &EntryName) -> Result<bool, Error> {
        let lock = self.folder.lock(LOCK_WAIT)?;
        let mut index = self.index();
        index.list(&self.folder)?;
        if task.next_job(&index)?.as_ref() != Some(job) {
            return Ok(false);
        }
        self.folder.publish(&lock, part, name)?;
        // Learned from the file, as every other process does.
        index.list(&self.folder)?;
        Ok(true)
    }
}
