//! What a save needs of a disk, and the real one.
//!
//! The trait exists so that every promise of a save can be tested: the fake disk (feature `oracle`) fails, tears and forgets
//! at any operation.

use super::file::read_at;
use crate::file::{Problem, check_kind};
use crate::io::ReadAt;
use std::boxed::Box;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[cfg(any(test, feature = "oracle"))]
pub mod fake;

/// Files in folders. What was written is durable once the file was synced; what was created, renamed or removed, once its folder was.
pub trait Disk: Sync {
    /// The file that `path` leads to, links followed; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Problem::Directory`], [`Problem::NotAFile`], [`Problem::Dangling`], or what the system says.
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem>;

    /// Opens a file for reading and writing in place.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file where there is nothing, with the permissions of the file `like`; without one, and until it has them, for its owner alone.
    ///
    /// # Errors
    /// What the system says; [`ErrorKind::AlreadyExists`] if there is something.
    fn create(&self, path: &Path, like: Option<&Path>) -> io::Result<Box<dyn DiskFile>>;

    /// Waits until nobody else has locked `path`, but no longer than `most`, and keeps them out until the result is dropped. Makes an empty
    /// file there.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if somebody had it locked all the time, else what the system says.
    fn lock(&self, path: &Path, most: Duration) -> io::Result<Box<dyn Send>>;

    /// Gives a file another name in the same folder, in place of whatever has it, in one step.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// An open file. One thread at a time writes to it.
pub trait DiskFile: ReadAt {
    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// What the system says; how much was written is unknown then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes all of `pieces`, one after the other, from `offset` on. What `pieces` show afterwards is undefined.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_pieces_at(&self, mut offset: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        for piece in pieces {
            self.write_at(offset, piece)?;
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Under how many names the file is found.
    ///
    /// # Errors
    /// What the system says.
    fn n_names(&self) -> io::Result<u64>;

    /// Cuts or lengthens the file.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// What the system says; what is durable is unknown then.
    fn sync(&self) -> io::Result<()>;
}

/// How long to sleep between two tries to get a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Options for a file that only its owner may read: states hold what was said.
#[cfg(unix)]
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Other systems take over who may read a file from its folder.
#[cfg(not(unix))]
fn private() -> OpenOptions {
    OpenOptions::new()
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem> {
        match fs::metadata(path) {
            Ok(metadata) => check_kind(&metadata)?,
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
                return Err(Problem::Dangling);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let link = fs::symlink_metadata(path)?.is_symlink();
        Ok(Some(if link { fs::canonicalize(path)? } else { path.into() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn create(&self, path: &Path, like: Option<&Path>) -> io::Result<Box<dyn DiskFile>> {
        let file = private().read(true).write(true).create_new(true).open(path)?;
        if let Some(like) = like {
            file.set_permissions(fs::metadata(like)?.permissions())?;
        }
        Ok(Box::new(RealFile(file)))
    }

    fn lock(&self, path: &Path, most: Duration) -> io::Result<Box<dyn Send>> {
        // Opening a pipe would wait for its other end.
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Err(ErrorKind::AlreadyExists.into()),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Box::new(file)),
                Err(TryLockError::WouldBlock) if began.elapsed() < most => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    #[cfg(unix)]
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        match File::open(folder)?.sync_all() {
            // A file system without such a thing: names are as durable there as they get.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    /// Other systems cannot open folders; their renames are durable by themselves.
    #[cfg(not(unix))]
    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A file of this machine.
struct RealFile(File);

impl ReadAt for RealFile {
    fn len(&self) -> Result<u64, crate::io::Error> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, crate::io::Error> {
        Ok(read_at(&self.0, offset, bytes)?)
    }
}

impl DiskFile for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (&self.0).seek(SeekFrom::Start(offset))?;
        (&self.0).write_all(bytes)
    }

    fn write_pieces_at(&self, offset: u64, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        (&self.0).seek(SeekFrom::Start(offset))?;
        // What is empty would look like a disk that takes nothing.
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            match (&self.0).write_vectored(pieces) {
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
        Ok(std::os::unix::fs::MetadataExt::nlink(&self.0.metadata()?))
    }

    /// Other systems do not tell without further ado.
    #[cfg(not(unix))]
    fn n_names(&self) -> io::Result<u64> {
        Ok(1)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
