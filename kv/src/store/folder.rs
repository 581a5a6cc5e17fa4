//! The folder of a store: names, and every call to the file system.
//!
//! Files are recognised by their names alone, and a name is only ever made from a [`PackName`] or taken from a listing, never from
//! inside a file. What does not look like ours, or is not a regular file, does not exist for the store.

use super::error::{Doing, Error};
use super::key::{KEY_BYTES, Key};
use super::pack::{self, Flaw, Head};
use crate::file::expect_size;
use crate::lock::LockFile;
use crate::private;
use core::fmt;
use std::boxed::Box;
use std::ffi::OsString;
use std::format;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::string::String;
use std::time::{Duration, SystemTime};
use std::vec;
use std::vec::Vec;

/// How the names of packs end.
const PACK: &str = ".pack";
/// How the names of files end that are being written.
const PART: &str = ".part";
/// The file whose lock guards the budget and all names.
const LOCK: &str = "store.lock";
/// How long to wait for the lock. It is held for milliseconds; only a stopped process holds it longer.
const LOCK_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// File systems tell times in steps of up to 2 seconds (FAT): a folder changed within them may change again unnoticed.
const TIME_STEP: Duration = Duration::from_secs(3);

/// What a pack is called: the key of its last block, and the checksum of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PackName {
    pub key: Key,
    pub check: u64,
}

impl PackName {
    pub(super) fn of(head: &Head) -> PackName {
        PackName { key: head.last(), check: head.check }
    }

    /// Reads a file's name; only what [`PackName`] would write is one.
    fn parse(name: &str) -> Option<PackName> {
        let (key, check) = name.strip_suffix(PACK)?.split_once('-')?;
        if key.len() != 2 * KEY_BYTES || check.len() != 16 || !key.is_ascii() {
            return None;
        }
        let mut bytes = [0; KEY_BYTES];
        for (byte, digits) in bytes.iter_mut().zip(key.as_bytes().as_chunks::<2>().0) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let found = PackName { key: Key::from_bytes(bytes), check: u64::from_str_radix(check, 16).ok()? };
        (format!("{found}") == name).then_some(found)
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}{PACK}", self.key, self.check)
    }
}

/// Whether a file is one that is, or was, being written: a process id, a dash, random digits.
fn is_part(name: &str) -> bool {
    let all = |text: &str, is: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is);
    let numbers = name.strip_suffix(PART).and_then(|stem| stem.split_once('-'));
    numbers.is_some_and(|(process, random)| {
        all(process, u8::is_ascii_digit) && all(random, u8::is_ascii_hexdigit)
    })
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Files named like packs.
    pub packs: Vec<PackName>,
    /// Files named like those being written.
    pub parts: Vec<String>,
}

/// A file's length and when it was last used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub len: u64,
    pub used: SystemTime,
}

/// A file that is being written. As long as it is open it is locked, so that everybody can see that its writer lives.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
}

/// The folder's lock; dropping it releases it. Its file stays: others list the folder again whenever a name in it changes.
#[derive(Debug)]
pub(super) struct Lock {
    _file: LockFile,
}

/// Decides whether a call to the file system fails in a test.
#[cfg(test)]
pub(super) type Fault = std::boxed::Box<dyn FnMut(Doing) -> io::Result<()> + Send>;

/// A folder.
pub(super) struct Folder {
    path: PathBuf,
    #[cfg(test)]
    pub(super) fault: std::sync::Mutex<Option<Fault>>,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Folder {
    pub(super) fn new(path: &Path) -> Folder {
        Folder {
            path: path.into(),
            #[cfg(test)]
            fault: std::sync::Mutex::default(),
        }
    }

    pub(super) fn path_of(&self, name: &PackName) -> PathBuf {
        self.path.join(format!("{name}"))
    }

    /// Every call goes through here.
    fn call<T>(&self, doing: Doing, path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
        self.may_fail(doing).and_then(|()| call()).map_err(|error| Error::Io {
            doing,
            path: path.into(),
            error,
        })
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests make it fail")]
    fn may_fail(&self, _doing: Doing) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn may_fail(&self, doing: Doing) -> io::Result<()> {
        match &mut *self.fault.lock().unwrap() {
            Some(fault) => fault(doing),
            None => Ok(()),
        }
    }

    /// Makes the folder if it is not there, for this user alone: prompts are private.
    pub(super) fn make(&self) -> Result<(), Error> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        self.call(Doing::MakeFolder, &self.path, || builder.create(&self.path))
    }

    /// When the folder last changed; `None` if that was too recent for a further change to show.
    pub(super) fn changed(&self) -> Result<Option<SystemTime>, Error> {
        let now = SystemTime::now();
        let changed = self.call(Doing::List, &self.path, || fs::metadata(&self.path)?.modified())?;
        let settled = now.duration_since(changed).is_ok_and(|age| age > TIME_STEP);
        Ok(settled.then_some(changed))
    }

    pub(super) fn list(&self) -> Result<Listing, Error> {
        self.call(Doing::List, &self.path, || {
            let mut listing = Listing::default();
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let Some(name) = entry.file_name().into_string().ok() else { continue };
                // Files may vanish while they are listed.
                if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    continue;
                }
                if let Some(pack) = PackName::parse(&name) {
                    listing.packs.push(pack);
                } else if is_part(&name) {
                    listing.parts.push(name);
                }
            }
            Ok(listing)
        })
    }

    /// Return true if a store was here.
    pub(super) fn is_store(&self) -> Result<bool, Error> {
        let Listing { packs, parts } = self.list()?;
        let has_lock = || fs::symlink_metadata(self.path.join(LOCK)).is_ok();
        Ok(!packs.is_empty() || !parts.is_empty() || has_lock())
    }

    /// Length and time of last use of a pack.
    pub(super) fn facts(&self, name: &PackName) -> Result<Facts, Error> {
        self.facts_at(&self.path_of(name))
    }

    /// Length and time of a file that is being written.
    pub(super) fn facts_of_part(&self, name: &str) -> Result<Facts, Error> {
        self.facts_at(&self.path.join(name))
    }

    fn facts_at(&self, path: &Path) -> Result<Facts, Error> {
        self.call(Doing::Ask, path, || {
            let metadata = fs::symlink_metadata(path)?;
            Ok(Facts { len: metadata.len(), used: metadata.modified()? })
        })
    }

    /// Opens a pack, and tells its length.
    pub(super) fn open(&self, name: &PackName) -> Result<(File, u64), Error> {
        let path = self.path_of(name);
        self.call(Doing::Open, &path, || {
            let file = private::open_plain(&path, OpenOptions::new().read(true))?;
            let len = file.metadata()?.len();
            Ok((file, len))
        })
    }

    /// Reads and checks the head of a pack.
    pub(super) fn head(&self, name: &PackName) -> Result<Head, Error> {
        let (file, len) = self.open(name)?;
        let path = self.path_of(name);
        let damaged = |flaw| Error::Pack { path: path.as_path().into(), flaw };
        if len < pack::FIXED_BYTES as u64 {
            return Err(damaged(Flaw::Length { found: len, wanted: pack::FIXED_BYTES as u64 }));
        }
        let mut fixed = [0; pack::FIXED_BYTES];
        self.call(Doing::Read, &path, || read_at(&file, &mut fixed, 0))?;
        let mut bytes = vec![0; pack::head_len(&fixed, len).map_err(damaged)?];
        self.call(Doing::Read, &path, || read_at(&file, &mut bytes, 0))?;
        let head = Head::decode(&bytes).map_err(damaged)?;
        if PackName::of(&head) == *name { Ok(head) } else { Err(damaged(Flaw::Chain)) }
    }

    /// Fills `bytes` from a pack.
    pub(super) fn read(&self, name: &PackName, file: &File, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        self.call(Doing::Read, &self.path_of(name), || read_at(file, bytes, at))
    }

    /// Where it is, for a message.
    pub(super) fn path(&self) -> Box<Path> {
        self.path.as_path().into()
    }

    /// Marks a pack as used at `when`.
    pub(super) fn touch(&self, name: &PackName, file: &File, when: SystemTime) -> Result<(), Error> {
        let path = self.path_of(name);
        self.call(Doing::Touch, &path, || set_used(&path, file, when))
    }

    /// Removes a pack; one that is gone already counts as removed.
    pub(super) fn remove(&self, name: &PackName) -> Result<(), Error> {
        let path = self.path_of(name);
        self.call(Doing::Remove, &path, || gone_is_fine(fs::remove_file(&path)))
    }

    /// Waits for the folder's lock, but not for ever.
    pub(super) fn lock(&self) -> Result<Lock, Error> {
        self.lock_within(LOCK_WAIT)
    }

    /// The folder's lock, if nobody holds it for long.
    pub(super) fn lock_within(&self, wait: Duration) -> Result<Lock, Error> {
        let path = self.path.join(LOCK);
        self.call(Doing::Lock, &path, || match LockFile::acquire(&path, wait) {
            Ok(file) => Ok(Some(Lock { _file: file })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        })?
        .ok_or_else(|| Error::Locked { folder: self.path(), seconds: wait.as_secs() })
    }

    /// Makes a file of `len` bytes that nobody reads yet. Its length is its reservation: others count it from now on.
    pub(super) fn reserve(&self, _lock: &Lock, len: u64) -> Result<Part, Error> {
        let front = OsString::from(format!("{}-", std::process::id()));
        let (file, path) = self.call(Doing::Create, &self.path, || {
            private::random_names(&self.path, &front, PART, private::create)
        })?;
        let part = Part { file, path };
        let reserved = self.call(Doing::Reserve, &part.path, || {
            expect_size(len)?;
            // Somebody who checks the folder may hold it for a moment.
            part.file.lock()?;
            part.file.set_len(len)
        });
        match reserved {
            Ok(()) => Ok(part),
            Err(error) => {
                self.discard(part);
                Err(error)
            }
        }
    }

    /// Writes all of `bytes` at the file's cursor.
    pub(super) fn write(&self, part: &Part, bytes: &[u8]) -> Result<(), Error> {
        self.call(Doing::Write, &part.path, || (&part.file).write_all(bytes))
    }

    /// Gives a written file its name, for everybody to see.
    pub(super) fn publish(
        &self,
        _lock: &Lock,
        part: &Part,
        name: &PackName,
        when: SystemTime,
    ) -> Result<(), Error> {
        // The time orders evictions; the file's own time of last writing does nearly as well.
        let _ = self.call(Doing::Touch, &part.path, || part.file.set_modified(when));
        self.call(Doing::Rename, &part.path, || fs::rename(&part.path, self.path_of(name)))
    }

    /// Gives up a file that is being written. If it cannot be removed, it is a leftover as soon as it is closed.
    pub(super) fn discard(&self, part: Part) {
        let _ = self.call(Doing::Remove, &part.path, || fs::remove_file(&part.path));
    }

    /// Whether the writer of a file is gone; one that cannot be asked counts as living.
    pub(super) fn is_leftover(&self, name: &str) -> bool {
        let path = self.path.join(name);
        self.call(Doing::Ask, &path, || is_unlocked(&path)).unwrap_or(false)
    }

    /// Removes a file that was being written if its writer is gone; tells whether it did.
    pub(super) fn remove_leftover(&self, _lock: &Lock, name: &str) -> Result<bool, Error> {
        let path = self.path.join(name);
        self.call(Doing::Remove, &path, || match remove_unlocked(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other,
        })
    }
}

/// Whether nobody holds the lock of a file.
fn is_unlocked(path: &Path) -> io::Result<bool> {
    match private::open_plain(path, OpenOptions::new().read(true))?.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes a regular file unless somebody holds its lock.
fn remove_unlocked(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    let file = private::open_plain(path, OpenOptions::new().write(true))?;
    match file.try_lock() {
        Ok(()) => fs::remove_file(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Sets the time of an open file.
#[cfg(not(windows))]
fn set_used(_path: &Path, file: &File, when: SystemTime) -> io::Result<()> {
    file.set_modified(when)
}

/// Sets the time of a file, by a handle of its own: Windows refuses it to one that was opened to read.
#[cfg(windows)]
fn set_used(path: &Path, _file: &File, when: SystemTime) -> io::Result<()> {
    const FILE_WRITE_ATTRIBUTES: u32 = 0x100;
    let mut options = OpenOptions::new();
    std::os::windows::fs::OpenOptionsExt::access_mode(&mut options, FILE_WRITE_ATTRIBUTES);
    options.open(path)?.set_modified(when)
}

fn gone_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Fills `bytes` from the file at `at`, without moving anything that threads share.
#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills `bytes` from the file at `at`. Threads share the file's cursor here, so that one reads at a time.
#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    static CURSOR: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}
