//! What a save needs of a disk, and the real one.
//!
//! The trait exists so that every promise of a save can be tested: the fake disk (feature `oracle`) fails, tears and forgets
//! at any operation.

use super::file::read_at;
use crate::file::{Problem, expect_size};
use crate::io::ReadAt;
use crate::lock::LockFile;
use crate::private;
use std::boxed::Box;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::vec::Vec;

#[cfg(any(test, feature = "oracle"))]
pub mod fake;

/// Files in folders. What was written is durable once the file was synced; what was created, renamed or removed, once its folder was.
pub trait Disk: Sync {
    /// The file that `path` leads to, links followed; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Problem::Directory`], [`Problem::NotAFile`], [`Problem::Dangling`], or what the system says.
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem>;

    /// Opens a file for reading and writing in place, and keeps it from all but its owner.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file where there is nothing, for its owner alone.
    ///
    /// # Errors
    /// What the system says; [`ErrorKind::AlreadyExists`] if there is something.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Waits until nobody else has locked `path`, but no longer than `most`, and keeps them out until the result is dropped. Makes an empty
    /// file there, which goes with the lock.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if somebody had it locked all the time, else what the system says.
    fn lock(&self, path: &Path, most: Duration) -> io::Result<Lock>;

    /// As [`Disk::lock`], until `stop` returns true. A disk that never waits need not ask.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Interrupted`] if `stop` returned true.
    fn lock_unless(&self, path: &Path, most: Duration, _stop: &dyn Fn() -> bool) -> io::Result<Lock> {
        self.lock(path, most)
    }

    /// Lists the names in a folder.
    ///
    /// # Errors
    /// What the system says.
    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>>;

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

/// A lock that is held until it is dropped.
pub struct Lock {
    /// Nobody held it before since its file was made: no process that died can have left anything.
    pub is_fresh: bool,
    /// Releases the lock when it is dropped.
    pub guard: Box<dyn Send>,
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

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem> {
        private::find(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = private::open_plain(path, OpenOptions::new().read(true).write(true))?;
        private::keep_from_others(&file)?;
        Ok(Box::new(RealFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(private::create(path)?)))
    }

    fn lock(&self, path: &Path, most: Duration) -> io::Result<Lock> {
        self.lock_unless(path, most, &|| false)
    }

    fn lock_unless(&self, path: &Path, most: Duration, stop: &dyn Fn() -> bool) -> io::Result<Lock> {
        let lock = LockFile::acquire_unless(path, most, stop)?.goes();
        Ok(Lock { is_fresh: lock.is_fresh, guard: Box::new(lock) })
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        private::sync_folder(folder)
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
        expect_size(offset.saturating_add(bytes.len() as u64))?;
        (&self.0).seek(SeekFrom::Start(offset))?;
        (&self.0).write_all(bytes)
    }

    fn write_pieces_at(&self, offset: u64, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).fold(0, u64::saturating_add);
        expect_size(offset.saturating_add(len))?;
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
        expect_size(len)?;
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
