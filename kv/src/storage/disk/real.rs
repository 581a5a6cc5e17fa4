//! The disk of this machine.

use super::lock::lock;
use super::names::{TEMP_BACK, folder_of, random_names, temp_front};
use super::private::{Readers, create, create_folder, keep_from_others};
use super::{Disk, DiskFile, Facts, Lock, Mode, Wait};
use crate::file::{FileError, Problem, check_kind, expect_size, open_plain, read_at};
use crate::io::ReadAt;
use std::boxed::Box;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::vec::Vec;

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem> {
        match fs::metadata(path) {
            Ok(metadata) => check_kind(&metadata)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return if fs::symlink_metadata(path).is_ok() { Err(Problem::Dangling) } else { Ok(None) };
            }
            Err(error) => return Err(error.into()),
        }
        let is_link = fs::symlink_metadata(path)?.is_symlink();
        Ok(Some(if is_link { fs::canonicalize(path)? } else { path.into() }))
    }

    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let writes = mode == Mode::Write;
        let file = open_plain(path, OpenOptions::new().read(true).write(writes))?;
        if writes {
            keep_from_others(&file)?;
        }
        Ok(Box::new(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(create(path, Readers::Owner)?))
    }

    fn lock(&self, path: &Path, wait: Wait<'_>) -> io::Result<Lock> {
        lock(path, wait)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        // The folder "." is its own; if it cannot be seen, making the folder says why.
        let parent = folder_of(folder);
        if parent != folder {
            self.make_folder(parent)?;
        }
        match create_folder(folder) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        // Without it a file that is synced in the folder could be lost with the folder's name.
        self.sync_folder(parent)
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn facts(&self, path: &Path) -> io::Result<Facts> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Facts { is_file: metadata.is_file(), len: metadata.len(), modified: metadata.modified()? })
    }

    fn changed(&self, folder: &Path) -> io::Result<SystemTime> {
        fs::metadata(folder)?.modified()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    #[cfg(not(windows))]
    fn touch(&self, path: &Path, when: SystemTime) -> io::Result<()> {
        open_plain(path, OpenOptions::new().read(true))?.set_modified(when)
    }

    /// Windows refuses it to a handle that was opened to read.
    #[cfg(windows)]
    fn touch(&self, path: &Path, when: SystemTime) -> io::Result<()> {
        const FILE_WRITE_ATTRIBUTES: u32 = 0x100;
        let mut options = OpenOptions::new();
        std::os::windows::fs::OpenOptionsExt::access_mode(&mut options, FILE_WRITE_ATTRIBUTES);
        open_plain(path, &mut options)?.set_modified(when)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Other systems cannot open folders; their renames are durable by themselves.
        if !cfg!(unix) {
            return Ok(());
        }
        let synced = File::open(folder).map(|folder| folder.sync_all());
        match synced {
            // A folder that may be written but not read, or a file system without such a thing:
            // names are as durable there as they get.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            synced => synced?,
        }
    }
}

impl ReadAt for File {
    fn len(&self) -> Result<u64, crate::io::Error> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, crate::io::Error> {
        Ok(read_at(self, offset, bytes)?)
    }
}

impl DiskFile for File {
    fn write_pieces_at(&self, offset: u64, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).fold(0, u64::saturating_add);
        expect_size(offset.saturating_add(len))?;
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        // What is empty would look like a disk that takes nothing.
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            match file.write_vectored(pieces) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut pieces, n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    #[cfg(unix)]
    fn n_names(&self) -> io::Result<u64> {
        Ok(std::os::unix::fs::MetadataExt::nlink(&self.metadata()?))
    }

    /// Other systems do not tell without further ado.
    #[cfg(not(unix))]
    fn n_names(&self) -> io::Result<u64> {
        Ok(1)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        expect_size(len)?;
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn claim(&self) -> io::Result<()> {
        // Somebody who asks whether it is claimed may hold it for a moment.
        self.lock()
    }

    fn is_claimed(&self) -> io::Result<bool> {
        match self.try_lock_shared() {
            Ok(()) => self.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Find out if a file can be written at `path`, by making one beside it that is removed at once,
/// and by opening what is there. A program that has long to compute before there is anything to
/// save hears of it first. Nothing is changed.
///
/// # Errors
/// [`FileError`] with the path of the file, or of the folder that it should be in: nothing there, a
/// directory, a pipe or a device, a link to nothing, or what the system says, for example that the
/// folder cannot be written to.
///
/// # Example
/// ```
/// use backstitch_kv::file::Problem;
/// use backstitch_kv::storage::disk::check_target;
///
/// let folder = tempfile::tempdir()?;
/// check_target(folder.path().join("a.bst"))?;
/// let error = check_target(folder.path()).unwrap_err();
/// assert!(matches!(error.problem, Problem::Directory));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_target(path: impl AsRef<Path>) -> Result<(), FileError> {
    let path = path.as_ref();
    let of_file = |problem| FileError::new(path, problem);
    let found = RealDisk.find(path).map_err(of_file)?;
    if path.file_name().is_none() {
        return Err(of_file(Problem::Directory));
    }
    let target = found.unwrap_or_else(|| path.into());
    if let Err(error) = open_plain(&target, OpenOptions::new().read(true).write(true))
        && error.kind() != ErrorKind::NotFound
    {
        return Err(of_file(error.into()));
    }
    let folder = folder_of(&target);
    let made = random_names(folder, &temp_front(&target), TEMP_BACK, |path| create(path, Readers::Owner));
    let removed = made.and_then(|(_, temp)| match fs::remove_file(temp) {
        // Somebody who saves there took it for what a killed process left.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    removed.map_err(|error| {
        let problem = if folder.is_dir() { Problem::Io(error) } else { Problem::from(error) };
        FileError::new(folder, problem)
    })
}

#[cfg(test)]
mod tests;
