//! Storing: what is missing becomes a pack, for which room is reserved before and which gets its name at the end.

use super::evict::Stop;
use super::folder::{Lock, PackName, Part};
use super::index::{Index, Known};
use super::key::{Key, blocks_of, chain};
use super::pack::{ALIGN, Head, MAX_ENTRIES, Plan};
use super::{Error, Shared, Store, count};
use crate::ids::Token;
use core::hash::Hasher;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use std::vec::Vec;
use twox_hash::XxHash3_64;

/// How often writing starts again because others changed the same prompt's blocks meanwhile.
const TRIES: usize = 4;

/// A payload: pieces that are stored one behind the other.
pub type Pieces<'a> = Vec<Cow<'a, [u8]>>;

/// What is to be stored of a prompt.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The key of the empty prefix: which model, which cache.
    pub root: Key,
    /// The prompt from its beginning; tokens behind the last block that is given do not matter.
    pub tokens: Cow<'a, [Token]>,
    /// The first block that is given, see [`Store::n_stored`]; all before it must be stored.
    pub first: usize,
    /// The payloads of the blocks from `first` on. Those that are stored already are skipped.
    pub blocks: Vec<Pieces<'a>>,
    /// Resume points: after how many blocks of the prompt, at least one and at most `first + blocks.len()`, and the payload.
    pub resumes: Vec<(usize, Pieces<'a>)>,
}

impl Entry<'_> {
    /// Bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        let resumes = self.resumes.iter().map(|(_, pieces)| pieces);
        self.blocks.iter().chain(resumes).map(len).fold(0, u64::saturating_add)
    }

    /// The same with bytes of its own, so that it can be stored elsewhere and later.
    pub fn into_owned(self) -> Entry<'static> {
        let own = |pieces: Pieces<'_>| -> Pieces<'static> {
            pieces.into_iter().map(|piece| Cow::Owned(piece.into_owned())).collect()
        };
        Entry {
            root: self.root,
            tokens: Cow::Owned(self.tokens.into_owned()),
            first: self.first,
            blocks: self.blocks.into_iter().map(own).collect(),
            resumes: self.resumes.into_iter().map(|(after, pieces)| (after, own(pieces))).collect(),
        }
    }

    /// The number of blocks of the prompt that the entry reaches to.
    fn end(&self) -> Result<usize, Error> {
        let end = self.first.saturating_add(self.blocks.len());
        let whole = blocks_of(&self.tokens).len();
        if end > whole {
            let (found, wanted) = (end as u64, whole as u64);
            return Err(Error::Entry { what: "more blocks than the tokens fill", found, wanted });
        }
        match self.resumes.iter().find(|(after, _)| *after == 0 || *after > end) {
            Some((after, _)) => {
                let (found, wanted) = (*after as u64, end as u64);
                Err(Error::Entry {
                    what: "a resume point that is not behind one of the blocks",
                    found,
                    wanted,
                })
            }
            None => Ok(end),
        }
    }
}

fn len(pieces: &Pieces<'_>) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).fold(0, u64::saturating_add)
}

fn checksum(pieces: &Pieces<'_>) -> u64 {
    let mut hasher = XxHash3_64::new();
    pieces.iter().for_each(|piece| hasher.write(piece));
    hasher.finish()
}

/// What storing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Packs that were written; 0 if all was stored already.
    pub packs: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A pack that is to be written: blocks `start..end` of the prompt, and some of the entry's resume points.
struct Job {
    start: usize,
    end: usize,
    /// Indices into the entry's resume points, ascending by place.
    resumes: Vec<usize>,
}

/// An entry, and what is computed from it once.
struct Task<'a> {
    entry: &'a Entry<'a>,
    keys: Vec<Key>,
    end: usize,
}

impl Store {
    /// Stores what of `entry` is not stored yet. Evicts what was not used for longest, so that the folder never holds more than its
    /// budget, not even while this writes. Does not sync: after a loss of power what was stored last may be gone or damaged, which is
    /// noticed when it is read.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Entry`] if the entry does not fit together; [`Error::Gap`], [`Error::Raced`] if blocks before it are
    /// gone or others interfere; [`Error::TooLarge`], [`Error::NoRoom`]; [`Error::Locked`]; [`Error::Io`], for example on a full disk.
    pub fn put(&self, entry: &Entry<'_>) -> Result<Put, Error> {
        self.shared.budget()?;
        let end = entry.end()?;
        let whole = blocks_of(&entry.tokens).get(..end).unwrap_or_default();
        let task = Task { entry, keys: chain(&entry.root, whole.as_flattened()), end };
        let mut done = Put::default();
        let mut tries = 0;
        let mut before = None;
        loop {
            let job = {
                let mut index = self.shared.index();
                index.refresh(&self.shared.folder)?;
                task.next_job(&index)?
            };
            let Some(job) = job else { return Ok(done) };
            let head = task.head(&job)?;
            match self.shared.write_pack(&task, &job, head)? {
                Some(head) => {
                    done.packs += 1;
                    done.blocks += head.blocks.len() as u64;
                    done.bytes += head.total;
                }
                None => tries += 1,
            }
            // What was written and yet is missing again is evicted, or damaged, as fast as it is written.
            tries += usize::from(before == Some(job.start..job.end));
            before = Some(job.start..job.end);
            if tries >= TRIES {
                return Err(Error::Raced { folder: self.shared.folder.path() });
            }
        }
    }
}

impl Task<'_> {
    /// The next pack to write: the first run of blocks that are not stored, or else a resume point.
    fn next_job(&self, index: &Index) -> Result<Option<Job>, Error> {
        let start = index.stored(&self.keys, &self.entry.tokens);
        if start < self.entry.first {
            return Err(Error::Gap { block: start as u64 });
        }
        let missing = (start..self.end).take(MAX_ENTRIES).take_while(|i| !self.is_stored(index, *i)).count();
        let mut places: Vec<_> = self.resumes_missing(index).collect();
        places.sort_unstable();
        places.dedup_by_key(|(after, _)| *after);
        let end = start + missing;
        if missing == 0 {
            let first = places.first();
            return Ok(first.map(|&(after, i)| Job { start: after, end: after, resumes: Vec::from([i]) }));
        }
        places.retain(|(after, _)| (start..=end).contains(after));
        Ok(Some(Job { start, end, resumes: places.into_iter().map(|(_, i)| i).collect() }))
    }

    fn is_stored(&self, index: &Index, i: usize) -> bool {
        let block = self.keys.get(i).zip(blocks_of(&self.entry.tokens).get(i));
        block.is_some_and(|(key, tokens)| index.block(key, tokens).is_some())
    }

    /// The resume points that are not stored: after how many blocks, and their index in the entry.
    fn resumes_missing<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = (usize, usize)> + 'a {
        let places = self.entry.resumes.iter().enumerate().map(|(i, (after, _))| (*after, i));
        places.filter(|(after, _)| self.key(*after).is_some_and(|key| index.resume(&key).is_none()))
    }

    /// The key of the first `n` blocks.
    fn key(&self, n: usize) -> Option<Key> {
        match n.checked_sub(1) {
            None => Some(self.entry.root),
            Some(last) => self.keys.get(last).copied(),
        }
    }

    fn payloads<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Pieces<'a>> + 'a {
        let first = self.entry.first;
        let blocks = (job.start..job.end).filter_map(move |i| self.entry.blocks.get(i.checked_sub(first)?));
        blocks.chain(self.resumes(job).map(|(_, pieces)| pieces))
    }

    fn resumes<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a (usize, Pieces<'a>)> + 'a {
        job.resumes.iter().filter_map(|i| self.entry.resumes.get(*i))
    }

    /// The head of the pack; computes the checksums of all payloads.
    fn head(&self, job: &Job) -> Result<Head, Error> {
        let tokens = blocks_of(&self.entry.tokens).get(job.start..job.end).unwrap_or_default();
        let blocks: Vec<_> = tokens
            .iter()
            .zip(self.payloads(job))
            .map(|(tokens, pieces)| (*tokens, len(pieces), checksum(pieces)))
            .collect();
        let resumes: Vec<_> = self
            .resumes(job)
            .map(|(after, pieces)| (after.saturating_sub(job.start) as u32, len(pieces), checksum(pieces)))
            .collect();
        let parent = self.key(job.start).unwrap_or(self.entry.root);
        let n_before = u32::try_from(job.start).ok();
        let head = n_before.and_then(|n_before| {
            Head::new(&Plan { root: self.entry.root, parent, n_before, blocks: &blocks, resumes: &resumes })
        });
        let wanted = MAX_ENTRIES as u64;
        head.ok_or(Error::Entry { what: "more than a file can hold", found: job.start as u64, wanted })
    }

    /// Whether nobody stored any of the job meanwhile, and all that it follows is still there.
    fn is_fresh(&self, index: &Index, job: &Job) -> bool {
        let stored = index.stored(&self.keys, &self.entry.tokens);
        let untouched = stored == job.start || (job.start == job.end && stored > job.start);
        untouched
            && (job.start..job.end).all(|i| !self.is_stored(index, i))
            && self
                .resumes(job)
                .all(|(after, _)| self.key(*after).is_some_and(|key| index.resume(&key).is_none()))
    }

    /// The packs that hold any of the prompt: making room for its end must not cost its beginning, nor the reverse.
    fn packs(&self, index: &Index) -> BTreeSet<PackName> {
        let blocks = self.keys.iter().filter_map(|key| index.at(key)).map(|found| found.pack);
        let resumes = self.keys.iter().filter_map(|key| index.resume(key)).map(|(pack, ..)| pack);
        blocks.chain(resumes).collect()
    }
}

impl Shared {
    /// Writes and publishes a pack; `None` if others changed the same prompt's blocks meanwhile.
    fn write_pack(&self, task: &Task<'_>, job: &Job, head: Head) -> Result<Option<Head>, Error> {
        let part = self.reserve(task, head.total)?;
        let published =
            self.write(&part, task, job, &head).and_then(|()| self.publish(&part, task, job, &head));
        match published {
            Ok(true) => {
                count(&self.counts.written);
                Ok(Some(head))
            }
            Ok(false) => {
                self.folder.discard(part);
                Ok(None)
            }
            Err(error) => {
                self.folder.discard(part);
                Err(error)
            }
        }
    }

    /// Evicts until there is room for `need` bytes, and reserves them.
    fn reserve(&self, task: &Task<'_>, need: u64) -> Result<Part, Error> {
        let budget = self.budget()?;
        if need > budget {
            return Err(Error::TooLarge { folder: self.folder.path(), need, budget });
        }
        let lock = self.folder.lock()?;
        let mut index = self.index();
        index.list(&self.folder)?;
        let keep = task.packs(&index);
        self.touch_all(&keep);
        let (evicted, failed) = self.evict(&lock, &mut index, &keep, Stop::AtBytes(budget - need))?;
        let kept = evicted.bytes;
        if kept > budget - need {
            // Of several reasons, the one that somebody can do something about.
            return Err(failed.unwrap_or(Error::NoRoom { folder: self.folder.path(), need, kept, budget }));
        }
        self.folder.reserve(&lock, need)
    }

    /// Marks packs as used, so that other processes do not evict what somebody is about to build on.
    fn touch_all(&self, packs: &BTreeSet<PackName>) {
        let now = SystemTime::now();
        for name in packs {
            if let Ok((file, _)) = self.folder.open(name) {
                let _ = self.folder.touch(name, &file, now);
            }
        }
    }

    fn write(&self, part: &Part, task: &Task<'_>, job: &Job, head: &Head) -> Result<(), Error> {
        let bytes = head.encode();
        self.folder.write(part, &bytes)?;
        let mut at = bytes.len() as u64;
        for pieces in task.payloads(job) {
            let padding = at.next_multiple_of(ALIGN) - at;
            self.folder.write(part, [0; ALIGN as usize].get(..padding as usize).unwrap_or_default())?;
            for piece in pieces {
                self.folder.write(part, piece)?;
            }
            at += padding + len(pieces);
        }
        Ok(())
    }

    /// Gives a written pack its name, unless others changed the same prompt's blocks meanwhile.
    fn publish(&self, part: &Part, task: &Task<'_>, job: &Job, head: &Head) -> Result<bool, Error> {
        let lock: Lock = self.folder.lock()?;
        let mut index = self.index();
        index.list(&self.folder)?;
        if !task.is_fresh(&index, job) {
            return Ok(false);
        }
        let name = PackName::of(head);
        self.folder.publish(&lock, part, &name, SystemTime::now())?;
        index.mark(&name, Known::Whole(Arc::new(head.clone())));
        Ok(true)
    }
}
