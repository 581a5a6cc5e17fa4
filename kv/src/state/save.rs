//! Saving to a path so that a crash at any moment leaves the old state or the new one.
//!
//! There are two ways. *Replacing* writes a new file beside the old one and gives it the name once it is whole and durable. *Appending*
//! writes what is new behind the bytes that count, makes it durable, and then overwrites the older of the two commit slots. Both happen
//! under a lock, so there is one temporary name, and whoever holds the lock may remove what a killed process left there.
//! `docs/state-format.md` goes through the cases.

use super::disk::{Disk, DiskFile};
use super::error::Operation;
use super::{Container, Error, Header, VERSION, Writer, Written};
use crate::file::Problem;
use crate::io::{self, Write};
use std::ffi::OsString;
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::vec::Vec;

/// How long to wait for others who save to the same path: longer than gigabytes take.
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// Whether a save waits until the disk has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Success means that the state survives the loss of power.
    Yes,
    /// The state survives the end of the process. After the loss of power the file may be damaged, which reading it finds.
    No,
}

/// What a save did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The container as it is now.
    pub container: Written,
    /// Whether it was written as a new file; else what was new was appended.
    pub replaced: bool,
}

/// Writes the sections. Called a second time if the first shows that a new file is better, and must do the same then.
type Fill<'f> = &'f mut dyn FnMut(&mut Writer<'_>) -> Result<(), Error>;

/// Saves the sections that `fill` writes to the file at `path`.
///
/// If there is a state file of the same model and scope, only what is new is appended to it, unless more than half of the file
/// would then be waste; anything else at the path is replaced. `fill` may be called twice, and finds what is continued in
/// [`Writer::old`]. A lock file, `.NAME.lock`, stays in the folder.
///
/// # Errors
/// What `fill` says, [`Error::Locked`], and [`Error::File`] with path and operation. The file then holds the old state; if the very last step failed, the making
/// durable, it may hold the new one.
pub fn save(
    disk: &dyn Disk,
    path: &Path,
    header: Header,
    sync: Sync,
    fill: Fill<'_>,
) -> Result<Saved, Error> {
    let found = disk.find(path).map_err(|problem| Error::file(Operation::Open, path, problem))?;
    let job = Job::new(disk, found.as_deref().unwrap_or(path), header, sync)?;
    let lock = beside(&job.path, ".lock");
    let _lock = disk.lock(&lock, LOCK_WAIT).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::Locked { path: lock.as_path().into(), seconds: LOCK_WAIT.as_secs() },
        _ => Error::file(Operation::Lock, &lock, error),
    })?;
    job.run(fill)
}

/// `.NAME` and a suffix, in the folder of `path`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

struct Job<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    temp: PathBuf,
    header: Header,
    sync: Sync,
}

impl<'a> Job<'a> {
    fn new(disk: &'a dyn Disk, path: &Path, header: Header, sync: Sync) -> Result<Self, Error> {
        if path.file_name().is_none() {
            return Err(Error::file(Operation::Open, path, Problem::Directory));
        }
        Ok(Self { disk, path: path.into(), temp: beside(path, ".tmp"), header, sync })
    }

    fn run(&self, fill: Fill<'_>) -> Result<Saved, Error> {
        self.discard_temp()?;
        // Looked at again: somebody may have saved while this process waited for the lock.
        let found = self.disk.find(&self.path).map_err(|problem| self.error(Operation::Open, problem))?;
        if found.is_some() {
            let file = self.disk.open(&self.path).map_err(|error| self.error(Operation::Open, error))?;
            if let Some(saved) = self.append(&*file, fill)? {
                return Ok(saved);
            }
        }
        self.replace(found.as_deref(), fill)
    }

    fn error(&self, operation: Operation, problem: impl Into<Problem>) -> Error {
        Error::file(operation, &self.path, problem)
    }

    fn temp_error(&self, operation: Operation, problem: impl Into<Problem>) -> Error {
        Error::file(operation, &self.temp, problem)
    }

    fn discard_temp(&self) -> Result<(), Error> {
        match self.disk.remove(&self.temp) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.temp_error(Operation::Remove, error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a new file beside the old one and gives it the name.
    fn replace(&self, old: Option<&Path>, fill: Fill<'_>) -> Result<Saved, Error> {
        let created = self.disk.create(&self.temp, old);
        let file = created.map_err(|error| self.temp_error(Operation::Create, error))?;
        let written = self.write_new(&*file, fill);
        drop(file);
        let renamed = written.and_then(|written| {
            let renamed = self.disk.rename(&self.temp, &self.path);
            renamed.map_err(|error| self.error(Operation::Rename, error))?;
            Ok(written)
        });
        let Ok(container) = renamed else {
            // The error that led here says more than one about the remains, which the next save looks for again.
            let _ = self.disk.remove(&self.temp);
            return renamed.map(|container| Saved { container, replaced: true });
        };
        self.sync_folder()?;
        Ok(Saved { container, replaced: true })
    }

    /// Writes everything, the commit slot last, and makes it durable.
    fn write_new(&self, file: &dyn DiskFile, fill: Fill<'_>) -> Result<Written, Error> {
        let mut out = Out::new(file, 0);
        let written = Writer::in_place(&mut out, self.header).and_then(|writer| finish(writer, fill));
        let written = out.end(written, &self.temp)?;
        self.commit(file, &self.temp, &written)?;
        Ok(written)
    }

    /// Writes the commit slot and makes it durable.
    fn commit(&self, file: &dyn DiskFile, path: &Path, written: &Written) -> Result<(), Error> {
        let (offset, slot) = written.slot();
        file.write_at(offset, &slot).map_err(|error| Error::file(Operation::Write, path, error))?;
        self.sync(file, path)
    }

    fn sync(&self, file: &dyn DiskFile, path: &Path) -> Result<(), Error> {
        if self.sync == Sync::No {
            return Ok(());
        }
        file.sync().map_err(|error| Error::file(Operation::Sync, path, error))
    }

    /// Makes the file's name durable.
    fn sync_folder(&self) -> Result<(), Error> {
        if self.sync == Sync::No {
            return Ok(());
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced = self.disk.sync_folder(folder.unwrap_or(Path::new(".")));
        synced.map_err(|error| self.error(Operation::Sync, error))
    }

    /// Appends what is new; `None` if the file is none to be continued, or not worth it, and is as it was.
    fn append(&self, file: &dyn DiskFile, fill: Fill<'_>) -> Result<Option<Saved>, Error> {
        let Some(old) = self.continued(file) else { return Ok(None) };
        let tail = self.write_tail(file, &old, fill);
        if !matches!(tail, Ok(Some(_))) {
            // What was written counts for nothing; where cutting it off fails, the next save writes over it.
            let _ = file.set_len(old.committed_len());
        }
        let Some(container) = tail? else { return Ok(None) };
        self.commit(file, &self.path, &container)?;
        // The save that made the file may not have waited for its name.
        self.sync_folder()?;
        Ok(Some(Saved { container, replaced: false }))
    }

    /// The container in `file`, if it can be continued.
    fn continued<'f>(&self, file: &'f dyn DiskFile) -> Option<Container<'f>> {
        // Under its other names, a copy made by linking for example, the file is to stay as it is.
        if file.n_names().ok()? > 1 {
            return None;
        }
        let old = Container::open(file).ok()?;
        let alike = *old.header() == self.header && old.version() == VERSION && !old.is_stream();
        // Nobody saves so often: a file that says so was made to stop those who count on.
        (alike && old.generation() < u64::MAX).then_some(old)
    }

    /// Writes what is new behind `old` and makes it durable; `None` if too much of the file would be waste.
    fn write_tail(
        &self,
        file: &dyn DiskFile,
        old: &Container<'_>,
        fill: Fill<'_>,
    ) -> Result<Option<Written>, Error> {
        let mut out = Out::new(file, old.committed_len());
        let written = Writer::append(&mut out, old).and_then(|writer| finish(writer, fill));
        let written = out.end(written, &self.path)?;
        if written.waste > written.bytes / 2 {
            return Ok(None);
        }
        self.sync(file, &self.path)?;
        Ok(Some(written))
    }
}

fn finish(mut writer: Writer<'_>, fill: Fill<'_>) -> Result<Written, Error> {
    fill(&mut writer)?;
    writer.finish()
}

/// Bytes that are gathered before they are written, and from which on pieces are not gathered.
const GATHERED: usize = 64 << 10;

/// Writes to a file in large pieces, and keeps what the system says until the path can be said with it.
struct Out<'a> {
    file: &'a dyn DiskFile,
    at: u64,
    gathered: Vec<u8>,
    failed: Option<std::io::Error>,
}

impl<'a> Out<'a> {
    fn new(file: &'a dyn DiskFile, at: u64) -> Self {
        Self { file, at, gathered: Vec::new(), failed: None }
    }

    /// Writes what was gathered and `pieces`, at once.
    fn put(&mut self, pieces: &[&[u8]]) -> Result<(), io::Error> {
        let slices = core::iter::once(&*self.gathered).chain(pieces.iter().copied()).map(IoSlice::new);
        let mut slices: Vec<IoSlice<'_>> = slices.filter(|slice| !slice.is_empty()).collect();
        let len = slices.iter().map(|slice| slice.len() as u64).fold(0, u64::saturating_add);
        if let Err(error) = self.file.write_pieces_at(self.at, &mut slices) {
            let kind = error.kind();
            self.failed = Some(error);
            return Err(io::Error::System(kind.into()));
        }
        self.at = self.at.saturating_add(len);
        self.gathered.clear();
        Ok(())
    }

    /// Writes what is left, unless something failed before.
    fn end(mut self, written: Result<Written, Error>, path: &Path) -> Result<Written, Error> {
        let written = written.and_then(|written| {
            self.put(&[])?;
            Ok(written)
        });
        match self.failed {
            Some(error) => Err(Error::file(Operation::Write, path, error)),
            None => written,
        }
    }
}

impl Write for Out<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), io::Error> {
        self.write_pieces(&[bytes])
    }

    fn write_pieces(&mut self, pieces: &[&[u8]]) -> Result<(), io::Error> {
        let len = pieces.iter().map(|piece| piece.len()).fold(self.gathered.len(), usize::saturating_add);
        if len > GATHERED {
            return self.put(pieces);
        }
        let refused = io::Error::OutOfMemory { bytes: GATHERED as u64 };
        self.gathered.try_reserve_exact(GATHERED.saturating_sub(self.gathered.len())).map_err(|_| refused)?;
        pieces.iter().for_each(|piece| self.gathered.extend_from_slice(piece));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
