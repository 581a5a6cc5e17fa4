//! Saving to a path so that a crash at any moment leaves the old state or the new one.
//!
//! There are two ways. *Replacing* writes a new file beside the old one and gives it the name once
//! it is whole and durable. *Appending* writes what is new behind the bytes that count, makes it
//! durable, and then overwrites the older of the two commit slots. Both happen under a lock, so
//! whoever holds it may remove the temporary files that a killed process left. Who cannot get the
//! lock writes a new file beside, under a name of its own: what was to be saved is never lost
//! because somebody else is in the way. So does a save that fails for another reason than a disk
//! that is full. `docs/state-format.md` goes through the cases.

use crate::file::Problem;
use crate::storage::container::{Container, Writer, Written};
use crate::storage::disk::{
    Disk, DiskFile, FileWriter, Mode, TEMP_BACK, Wait, folder_of, is_random_name, random_names, temp_front,
};
use crate::storage::error::{Error, Operation};
use crate::storage::header::Header;
use std::boxed::Box;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time to wait for others who save to the same path: longer than gigabytes take.
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// The text between the name of a file that could not be saved to and the random part of the
/// name of the one beside it.
const UNSAVED: &str = ".unsaved-";

/// Durability of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Success means that the state survives the loss of power.
    Yes,
    /// The state survives the end of the process. After the loss of power the file may be damaged,
    /// which reading it finds.
    No,
}

/// Result of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The container as it is now.
    pub container: Written,
    /// A file that was there was continued: what is new was appended to it. Else all was written to
    /// a new file.
    pub appended: bool,
    /// The new file took the place of one that was there, of whatever kind that was.
    pub replaced: bool,
}

/// Writes the sections. Called a second time if the first shows that a new file is better, and must
/// do the same then.
type Fill<'f> = &'f mut dyn FnMut(&mut Writer<'_>) -> Result<(), Error>;

/// Questions that a save asks its caller while it works. By default it waits for others, and
/// replaces what is there.
///
/// # Example
/// ```
/// use backstitch_kv::storage::disk::RealDisk;
/// use backstitch_kv::storage::{Error, Fingerprint, Header, Scope, Sync, Watch, save_watched};
/// use std::path::Path;
///
/// /// Replaces nothing.
/// struct New;
///
/// impl Watch for New {
///     fn may_write(&self, path: &Path) -> bool {
///         !path.exists()
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("a.bst");
/// let header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };
/// let save = || save_watched(&RealDisk, &path, header, Sync::No, &New, &mut |_| Ok(()));
/// save()?;
/// assert!(matches!(save(), Err(Error::NotReplaced { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Watch {
    /// Return true to wait no longer for others who save to the same path; the state goes to a file
    /// beside then.
    fn stops_waiting(&self) -> bool {
        false
    }

    /// Return false to keep what is at `path`, links followed, as it is. Asked once others are kept
    /// out, so that nobody who saves can change the answer before the new state is there.
    fn may_write(&self, _path: &Path) -> bool {
        true
    }
}

/// Nobody: waits and replaces.
impl Watch for () {}

/// Save the sections that `fill` writes to the file at `path`.
///
/// If there is a state file of the same model and scope, only what is new is appended to it, unless
/// more than half of the file would then be waste; anything else at the path is replaced. `fill`
/// may be called several times, and finds what is continued in [`Writer::old`]. While this works, a
/// lock file, `.NAME.lock`, stands in the folder. The file is for its owner alone afterwards (mode
/// 0600), whatever it was before.
///
/// # Errors
/// The error of `fill`, and [`Error::File`] with path and operation. The file then holds the old
/// state; if the very last step failed, the making durable, it may hold the new one.
/// [`Error::SavedBeside`] if the lock could not be had or the file not be written, for another
/// reason than a disk that is full: what was to be saved is in the file that it names, and the one
/// at `path` is as it was.
pub fn save(
    disk: &dyn Disk,
    path: &Path,
    header: Header,
    sync: Sync,
    fill: Fill<'_>,
) -> Result<Saved, Error> {
    save_watched(disk, path, header, sync, &(), fill)
}

/// As [`save`], with somebody who may stop the waiting and keep what is at `path`.
///
/// # Errors
/// As [`save`]; [`Error::NotReplaced`] if `watch` says so, and everything is as it was.
pub fn save_watched(
    disk: &dyn Disk,
    path: &Path,
    header: Header,
    sync: Sync,
    watch: &dyn Watch,
    fill: Fill<'_>,
) -> Result<Saved, Error> {
    let found = disk.find(path).map_err(|problem| Error::file(Operation::Open, path, problem))?;
    let path = found.as_deref().unwrap_or(path);
    if path.file_name().is_none() {
        return Err(Error::file(Operation::Open, path, Problem::Directory));
    }
    let job = Job { disk, path, header, sync };
    let path = lock_of(path);
    let began = Instant::now();
    let locked = |waited: Duration| Error::Locked { path: path.as_path().into(), seconds: waited.as_secs() };
    let wait = Wait { most: LOCK_WAIT, stop: &|| watch.stops_waiting(), goes: true };
    let cause = match disk.lock(&path, wait) {
        Ok(lock) => return job.run(lock.is_fresh, watch, fill),
        Err(error) if error.kind() == ErrorKind::WouldBlock => locked(LOCK_WAIT),
        Err(error) if error.kind() == ErrorKind::Interrupted => locked(began.elapsed()),
        Err(error) => Error::file(Operation::Lock, &path, error),
    };
    Err(job.save_beside(cause, fill))
}

/// Return the lock file of those who save to `path`.
fn lock_of(path: &Path) -> PathBuf {
    let mut name = temp_front(path);
    name.push("lock");
    path.with_file_name(name)
}

/// A save to `path`, which is no link.
struct Job<'a> {
    disk: &'a dyn Disk,
    path: &'a Path,
    header: Header,
    sync: Sync,
}

impl Job<'_> {
    fn run(&self, lock_is_fresh: bool, watch: &dyn Watch, fill: Fill<'_>) -> Result<Saved, Error> {
        if !lock_is_fresh {
            self.discard_leftovers();
        }
        if !watch.may_write(self.path) {
            return Err(Error::NotReplaced { path: self.path.into() });
        }
        match self.write(fill) {
            Err(error) if is_mended_beside(&error) => Err(self.save_beside(error, fill)),
            written => written,
        }
    }

    /// Append to the file that is there, or write a new one beside it and give that the name.
    fn write(&self, fill: Fill<'_>) -> Result<Saved, Error> {
        // Looked at again: somebody may have saved while this process waited for the lock.
        let found = self.disk.find(self.path).map_err(|problem| self.error(Operation::Open, problem))?;
        if found.is_some() {
            let file = self.disk.open(self.path, Mode::Write);
            let file = file.map_err(|error| self.error(Operation::Open, error))?;
            if let Some(saved) = self.append(&*file, fill)? {
                return Ok(saved);
            }
        }
        self.discard_leftovers();
        let (temp, container) = self.write_new(&temp_front(self.path), TEMP_BACK, fill)?;
        if let Err(error) = self.disk.rename(&temp, self.path) {
            // The error says more than one about the remains, which the next save looks for again.
            let _ = self.disk.remove(&temp);
            return Err(self.error(Operation::Rename, error));
        }
        self.sync_folder()?;
        Ok(Saved { container, appended: false, replaced: found.is_some() })
    }

    fn error(&self, operation: Operation, problem: impl Into<Problem>) -> Error {
        Error::file(operation, self.path, problem)
    }

    fn folder(&self) -> &Path {
        folder_of(self.path)
    }

    /// Remove the temporary files of saves to this path that were killed, as far as the system
    /// allows: they are in nobody's way.
    fn discard_leftovers(&self) {
        let front = temp_front(self.path);
        let names = self.disk.names_in(self.folder()).unwrap_or_default();
        for name in names.iter().filter(|name| is_random_name(name, &front, TEMP_BACK)) {
            let _ = self.disk.remove(&self.folder().join(name));
        }
    }

    /// Write a new file that stays beside the one that could not be saved to because of `cause`,
    /// and return the error that says so. Where that is impossible too, the error has both reasons.
    fn save_beside(&self, cause: Error, fill: Fill<'_>) -> Error {
        let mut front = self.path.file_name().unwrap_or_default().to_owned();
        front.push(UNSAVED);
        let written = self.write_new(&front, "", fill);
        match written.and_then(|(path, _)| self.sync_folder().map(|()| path)) {
            Ok(path) => Error::SavedBeside { path: path.into(), cause: Box::new(cause) },
            Err(beside) => Error::NotSaved { cause: Box::new(cause), beside: Box::new(beside) },
        }
    }

    /// Write a new file with a random name, whole and durable, or none.
    fn write_new(&self, front: &OsStr, back: &str, fill: Fill<'_>) -> Result<(PathBuf, Written), Error> {
        let created = random_names(self.folder(), front, back, |path| self.disk.create(path));
        let (file, path) = created.map_err(|error| self.error(Operation::Create, error))?;
        let written = self.write_container(&*file, None, fill);
        let committed = written.and_then(|written| self.commit(&*file, &written).map(|()| written));
        drop(file);
        if committed.is_err() {
            let _ = self.disk.remove(&path);
        }
        Ok((path, committed?))
    }

    /// Write all but the commit slot; behind `old`, only what is new.
    fn write_container(
        &self,
        file: &dyn DiskFile,
        old: Option<&Container<'_>>,
        fill: Fill<'_>,
    ) -> Result<Written, Error> {
        let mut out = FileWriter::new(file, old.map_or(0, Container::committed_len));
        let writer = match old {
            Some(old) => Writer::append(&mut out, old),
            None => Writer::in_place(&mut out, self.header),
        };
        let written = writer.and_then(|mut writer| {
            fill(&mut writer)?;
            writer.finish()
        });
        out.end(written, self.path)
    }

    /// Write the commit slot and make it durable.
    fn commit(&self, file: &dyn DiskFile, written: &Written) -> Result<(), Error> {
        let (offset, slot) = written.slot();
        file.write_at(offset, &slot).map_err(|error| self.error(Operation::Write, error))?;
        self.sync(|| file.sync())
    }

    /// Make the file's name durable.
    fn sync_folder(&self) -> Result<(), Error> {
        self.sync(|| self.disk.sync_folder(self.folder()))
    }

    fn sync(&self, sync: impl FnOnce() -> std::io::Result<()>) -> Result<(), Error> {
        let synced = if self.sync == Sync::Yes { sync() } else { Ok(()) };
        synced.map_err(|error| self.error(Operation::Sync, error))
    }

    /// Append what is new; `None` if the file is none to be continued, or not worth it, and is as
    /// it was.
    fn append(&self, file: &dyn DiskFile, fill: Fill<'_>) -> Result<Option<Saved>, Error> {
        let Some(old) = self.continued(file) else { return Ok(None) };
        let tail = self.write_container(file, Some(&old), fill).and_then(|written| {
            if written.waste > written.bytes / 2 {
                return Ok(None);
            }
            self.sync(|| file.sync())?;
            Ok(Some(written))
        });
        if !matches!(tail, Ok(Some(_))) {
            // What was written counts for nothing; where cutting it off fails, the next save writes
            // over it.
            let _ = file.set_len(old.committed_len());
        }
        let Some(container) = tail? else { return Ok(None) };
        self.commit(file, &container)?;
        // The save that made the file may not have waited for its name.
        self.sync_folder()?;
        Ok(Some(Saved { container, appended: true, replaced: false }))
    }

    /// Return the container in `file`, if it can be continued.
    fn continued<'f>(&self, file: &'f dyn DiskFile) -> Option<Container<'f>> {
        // Under its other names, a copy made by linking for example, the file is to stay as it is.
        if file.n_names().ok()? > 1 {
            return None;
        }
        let old = Container::open(file).ok()?;
        let alike = *old.header() == self.header && !old.is_stream();
        // Nobody saves so often: a file that says so was made to stop those who count on.
        (alike && old.generation() < u64::MAX).then_some(old)
    }
}

/// Return true if a file beside could be written where this one could not: it would take as much
/// room.
fn is_mended_beside(error: &Error) -> bool {
    let Error::File { operation: Operation::Open | Operation::Write | Operation::Rename, error } = error
    else {
        return false;
    };
    let lacks_room = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    };
    !matches!(&error.problem, Problem::Io(error) if lacks_room(error))
}

#[cfg(test)]
mod tests;
