//! Storing: what is missing becomes an entry, for which room is reserved before and which gets its
//! name at the end.

use super::entry::{self, EntryName, MAX_PAYLOADS};
use super::error::Error;
use super::evict::Stop;
use super::folder::Part;
use super::index::Index;
use super::key::{BlockTokens, Key, blocks_of, chain};
use super::{PromptCache, Shared};
use crate::ids::Token;
use crate::storage::container::{Writer, container_bytes};
use crate::storage::disk::FileWriter;
use core::ops::Range;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::SystemTime;
use std::vec::Vec;

/// The number of times that writing starts again because others changed the same prompt's blocks
/// meanwhile.
const TRIES: usize = 4;

/// A payload: pieces that are stored one behind the other.
pub type Pieces<'a> = Vec<Cow<'a, [u8]>>;

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
        self.blocks.iter().chain(resumes).map(len).fold(0, u64::saturating_add)
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
        let request = |what, found: usize, wanted: usize| {
            Err(Error::Request { what, found: found as u64, wanted: wanted as u64 })
        };
        let end = self.first.saturating_add(self.blocks.len());
        let whole = blocks_of(&self.tokens).len();
        if end > whole {
            return request("more blocks than the tokens fill", end, whole);
        }
        match self.resumes.iter().find(|(after, _)| *after == 0 || *after > end) {
            Some((after, _)) => request("a resume point that is not behind one of the blocks", *after, end),
            None => Ok(end),
        }
    }
}

fn len(pieces: &Pieces<'_>) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).fold(0, u64::saturating_add)
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
    /// Indices into the prefix's resume points, ascending by place.
    resumes: Vec<usize>,
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
    /// [`Error::ReadOnly`]; [`Error::Request`] if the prefix does not fit together; [`Error::Gap`],
    /// [`Error::Raced`] if blocks before it are gone or others interfere; [`Error::TooLarge`],
    /// [`Error::NoRoom`]; [`Error::Locked`]; [`Error::Disk`], for example on a full disk.
    pub fn put(&self, prefix: &EvaluatedPrefix<'_>) -> Result<Put, Error> {
        self.shared.budget()?;
        let blocks = &blocks_of(&prefix.tokens)[..prefix.end()?];
        let keys = [prefix.root].into_iter().chain(chain(&prefix.root, blocks.as_flattened())).collect();
        let task = Task { prefix, blocks, keys };
        let mut done = Put::default();
        let mut tries = 0;
        let mut before = None;
        loop {
            let job = task.next_job(&*self.shared.refreshed()?)?;
            let Some(job) = job else { return Ok(done) };
            match self.shared.write_entry(&task, &job)? {
                Some(bytes) => {
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
        let resumes = self.prefix.resumes.iter().enumerate().map(|(i, (after, _))| (*after, i));
        let mut places: Vec<(usize, usize)> =
            resumes.filter(|(after, _)| index.resume(&self.keys[*after]).is_none()).collect();
        places.sort_unstable();
        places.dedup_by_key(|(after, _)| *after);
        if n_missing == 0 {
            let first = places.first();
            return Ok(first.map(|&(after, i)| Job { blocks: after..after, resumes: Vec::from([i]) }));
        }
        let end = start + n_missing;
        places.retain(|(after, _)| (start..=end).contains(after));
        Ok(Some(Job { blocks: start..end, resumes: places.into_iter().map(|(_, i)| i).collect() }))
    }

    /// Return the payloads of the job's blocks.
    fn blocks(&self, job: &Job) -> &[Pieces<'_>] {
        // A resume point alone may stand before the first block that is given.
        let [start, end] = [job.blocks.start, job.blocks.end].map(|i| i.saturating_sub(self.prefix.first));
        &self.prefix.blocks[start..end]
    }

    /// Return the job's resume points: after how many blocks of the entry, and the payloads.
    fn resumes<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = (u64, &'a Pieces<'a>)> + 'a {
        let resumes = job.resumes.iter().map(|&i| &self.prefix.resumes[i]);
        resumes.map(|(after, pieces)| ((after - job.blocks.start) as u64, pieces))
    }

    /// Return the content of `PRFX`.
    fn description(&self, job: &Job) -> Result<Vec<u8>, Error> {
        let (what, found) = ("blocks of a prompt", job.blocks.start as u64);
        let too_many = |_| Error::Request { what, found, wanted: u64::from(u32::MAX) };
        let n_before = u32::try_from(job.blocks.start).map_err(too_many)?;
        Ok(entry::prefix(&self.keys[job.blocks.start], n_before, &self.blocks[job.blocks.clone()]))
    }

    /// Return the entries that hold any of the prompt: making room for its end must not cost its
    /// beginning, nor the reverse.
    fn entries(&self, index: &Index) -> BTreeSet<EntryName> {
        let blocks = self.keys[1..].iter().filter_map(|key| index.at(key)).map(|found| found.0);
        let resumes = self.keys[1..].iter().filter_map(|key| index.resume(key)).map(|found| found.0);
        blocks.chain(resumes).collect()
    }
}

impl Shared {
    /// Write and publish an entry, and return its bytes; `None` if others changed the same prompt's
    /// blocks meanwhile.
    fn write_entry(&self, task: &Task<'_>, job: &Job) -> Result<Option<u64>, Error> {
        let description = task.description(job)?;
        let payloads = task.blocks(job).iter().chain(task.resumes(job).map(|(_, pieces)| pieces));
        let need = container_bytes(payloads.map(len).chain([description.len() as u64]));
        let need = need.unwrap_or(u64::MAX);
        let part = self.reserve(task, need)?;
        let name = self.write(&part, task, job, &description);
        let published = name.and_then(|name| self.publish(&part, task, job, &name));
        match published {
            Ok(true) => {
                self.count(|stats| stats.written += 1);
                Ok(Some(need))
            }
            not_published => {
                self.folder.discard(part);
                not_published.map(|_| None)
            }
        }
    }

    /// Evict until there is room for `need` bytes, and reserve them.
    fn reserve(&self, task: &Task<'_>, need: u64) -> Result<Part, Error> {
        let budget = self.budget()?;
        if need > budget {
            return Err(Error::TooLarge { folder: self.folder.path(), need, budget });
        }
        let lock = self.folder.lock()?;
        let mut index = self.index();
        let listing = index.list(&self.folder)?;
        let keep = task.entries(&index);
        self.touch_all(&keep);
        let (evicted, failed) = self.evict(&lock, &mut index, listing, &keep, Stop::AtBytes(budget - need));
        let kept = evicted.bytes;
        if kept > budget - need {
            // Of several reasons, the one that somebody can do something about.
            return Err(failed.unwrap_or(Error::NoRoom { folder: self.folder.path(), need, kept, budget }));
        }
        self.folder.reserve(&lock, need)
    }

    /// Mark entries as used, so that other processes do not evict what somebody is about to build
    /// on.
    fn touch_all(&self, entries: &BTreeSet<EntryName>) {
        let now = SystemTime::now();
        for name in entries {
            if let Ok(file) = self.folder.open(name) {
                let _ = self.folder.touch(name, &*file, now);
            }
        }
    }

    /// Write the container of an entry, and return the name that the entry gets.
    fn write(&self, part: &Part, task: &Task<'_>, job: &Job, description: &[u8]) -> Result<EntryName, Error> {
        let mut out = FileWriter::new(&*part.file, 0);
        let written = Writer::new(&mut out, entry::header(&task.prefix.root)).and_then(|mut writer| {
            entry::write(&mut writer, description, task.blocks(job).iter(), task.resumes(job))?;
            writer.finish()
        });
        let written = out.end(written, &part.path)?;
        Ok(EntryName { key: task.keys[job.blocks.end], check: written.whole_checksum })
    }

    /// Give a written entry its name, unless others changed the same prompt's blocks meanwhile.
    fn publish(&self, part: &Part, task: &Task<'_>, job: &Job, name: &EntryName) -> Result<bool, Error> {
        let lock = self.folder.lock()?;
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
