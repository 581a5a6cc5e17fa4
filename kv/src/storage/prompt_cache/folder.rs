//! The folder of a prompt cache: names, and all calls to the disk.
//!
//! Files are recognised by their names alone, and a name is only ever made from an [`EntryName`] or
//! taken from a listing, never from inside a file. A file that does not look like one of a prompt
//! cache, or is not a regular file, does not exist for it.

use super::entry::{Entry, EntryName};
use crate::storage::disk::{Disk, DiskFile, Facts, Lock, Mode, Wait, random_names};
use crate::storage::error::{Error, Operation};
use core::fmt;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::format;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::string::String;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::vec::Vec;

/// End of the names of files that are being written.
const PART: &str = ".part";
/// The file whose lock guards the budget and all names.
const LOCK: &str = "cache.lock";
/// The time to wait for the lock. It is held for milliseconds; only a stopped process holds it
/// longer.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// File systems tell times in steps of up to 2 seconds (FAT): a folder changed within them may
/// change again unnoticed.
const TIME_STEP: Duration = Duration::from_secs(3);

/// Return true for the name of a file that is, or was, being written: a process id, a dash, random
/// digits.
fn is_part(name: &str) -> bool {
    let all = |text: &str, is: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is);
    let numbers = name.strip_suffix(PART).and_then(|stem| stem.split_once('-'));
    numbers.is_some_and(|(process, random)| {
        all(process, u8::is_ascii_digit) && all(random, u8::is_ascii_hexdigit)
    })
}

/// Files of a folder, with lengths and times of last use.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Files named like entries.
    pub entries: BTreeMap<EntryName, Facts>,
    /// Files named like those being written, and entries of an older format.
    pub others: Vec<(String, Facts)>,
}

/// A file that is being written. It is claimed as long as it is open, so that everybody can see
/// that its writer lives.
pub(super) struct Part {
    pub file: Box<dyn DiskFile>,
    pub path: PathBuf,
}

/// A folder.
pub(super) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// Name operation and path in an error of the system.
fn named<T>(operation: Operation, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|error| Error::file(operation, path, error))
}

impl Folder {
    pub(super) fn new(disk: Arc<dyn Disk>, path: &Path) -> Folder {
        Folder { disk, path: path.into() }
    }

    /// Return where the folder is, for a message.
    pub(super) fn path(&self) -> Box<Path> {
        self.path.as_path().into()
    }

    pub(super) fn path_of(&self, name: &EntryName) -> PathBuf {
        self.path.join(format!("{name}"))
    }

    /// Make the folder if it is not there, for this user alone: prompts are private.
    pub(super) fn make(&self) -> Result<(), Error> {
        named(Operation::MakeFolder, &self.path, self.disk.make_folder(&self.path))
    }

    /// Return when the folder last changed; `None` if that was too recent for a further change to
    /// show, or the system does not tell.
    pub(super) fn changed(&self) -> Option<SystemTime> {
        let now = SystemTime::now();
        let changed = self.disk.changed(&self.path).ok()?;
        let is_settled = now.duration_since(changed).is_ok_and(|age| age > TIME_STEP);
        is_settled.then_some(changed)
    }

    /// List the files of the cache.
    pub(super) fn list(&self) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        for name in named(Operation::List, &self.path, self.disk.names_in(&self.path))? {
            let Ok(name) = name.into_string() else { continue };
            let entry = EntryName::parse(&name);
            if entry.is_none() && !is_part(&name) && !EntryName::is_outdated(&name) {
                continue;
            }
            // Files may vanish while they are listed. One that cannot be asked must not count as
            // nothing.
            let path = self.path.join(&name);
            let facts = match self.disk.facts(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                facts => named(Operation::Ask, &path, facts)?,
            };
            match entry {
                _ if !facts.is_file => {}
                Some(entry) => {
                    listing.entries.insert(entry, facts);
                }
                None => listing.others.push((name, facts)),
            }
        }
        Ok(listing)
    }

    /// Return true if there is a prompt cache here, maybe an empty one.
    pub(super) fn is_cache(&self) -> Result<bool, Error> {
        let Listing { entries, others } = self.list()?;
        Ok(!entries.is_empty() || !others.is_empty() || self.disk.facts(&self.path.join(LOCK)).is_ok())
    }

    /// Open the file of an entry.
    pub(super) fn open(&self, name: &EntryName) -> Result<Box<dyn DiskFile>, Error> {
        let path = self.path_of(name);
        named(Operation::Open, &path, self.disk.open(&path, Mode::Read))
    }

    /// Read an entry without its payloads.
    pub(super) fn entry(&self, name: &EntryName) -> Result<Entry, Error> {
        let file = self.open(name)?;
        self.in_entry(
            name,
            Entry::read(&*file).and_then(|entry| match entry.name == *name {
                true => Ok(entry),
                false => Err(Error::Malformed {
                    section: super::entry::PREFIX,
                    offset: 0,
                    what: "checksum of an entry that is not named for its tokens and content",
                    found: entry.name.check,
                    wanted: name.check,
                }),
            }),
        )
    }

    /// Name the file of an entry in an error about its content.
    pub(super) fn in_entry<T>(&self, name: &EntryName, read: Result<T, Error>) -> Result<T, Error> {
        read.map_err(|error| Error::Entry { path: self.path_of(name).into(), error: Box::new(error) })
    }

    /// Mark entries as used now; if that fails they are merely evicted earlier.
    pub(super) fn touch(&self, entries: &BTreeSet<EntryName>) {
        let now = SystemTime::now();
        for name in entries {
            let _ = self.disk.touch(&self.path_of(name), now);
        }
    }

    /// Remove an entry; one that is gone already counts as removed.
    pub(super) fn remove(&self, name: &EntryName) -> Result<(), Error> {
        let path = self.path_of(name);
        match self.disk.remove(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => named(Operation::Remove, &path, removed),
        }
    }

    /// Take the folder's lock, if nobody holds it for long. Its file stays: others list the folder
    /// again whenever a name in it changes.
    pub(super) fn lock(&self, most: Duration) -> Result<Lock, Error> {
        let path = self.path.join(LOCK);
        match self.disk.lock(&path, Wait { most, stop: &|| false, goes: false }) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Error::Locked { path: path.as_path().into(), seconds: most.as_secs() })
            }
            lock => named(Operation::Lock, &path, lock),
        }
    }

    /// Make a file of `len` bytes that nobody reads yet. Its length is its reservation: others
    /// count it from now on.
    pub(super) fn reserve(&self, _lock: &Lock, len: u64) -> Result<Part, Error> {
        let front = OsString::from(format!("{}-", std::process::id()));
        let made = random_names(&self.path, &front, PART, |path| self.disk.create(path));
        let (file, path) = named(Operation::Create, &self.path, made)?;
        let part = Part { file, path };
        let reserved = part.file.claim().and_then(|()| part.file.set_len(len));
        let reserved = reserved.inspect_err(|_| self.discard(&part));
        named(Operation::Resize, &part.path, reserved).map(|()| part)
    }

    /// Give a written file its name, for everybody to see.
    pub(super) fn publish(&self, _lock: &Lock, part: &Part, name: &EntryName) -> Result<(), Error> {
        // The time orders evictions; the file's own time of last writing does nearly as well.
        let _ = self.disk.touch(&part.path, SystemTime::now());
        named(Operation::Rename, &part.path, self.disk.rename(&part.path, &self.path_of(name)))
    }

    /// Give up a file that is being written. If it cannot be removed, it is a leftover as soon as
    /// it is closed.
    pub(super) fn discard(&self, part: &Part) {
        let _ = self.disk.remove(&part.path);
    }

    /// Return true if the writer of a file is gone; one that cannot be asked counts as living.
    pub(super) fn is_leftover(&self, name: &str) -> bool {
        let file = self.disk.open(&self.path.join(name), Mode::Read);
        file.and_then(|file| file.is_claimed()).is_ok_and(|is_claimed| !is_claimed)
    }

    /// Remove a file that was being written if its writer is gone, and return true if it was.
    pub(super) fn remove_leftover(&self, _lock: &Lock, name: &str) -> bool {
        self.is_leftover(name) && self.disk.remove(&self.path.join(name)).is_ok()
    }
}
