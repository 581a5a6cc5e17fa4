//! The one disk layer: every call that saved states and the prompt cache make to a file system.
//!
//! [`RealDisk`] is the disk of this machine. The trait exists so that every promise can be tested:
//! the fake disk (feature `testing`) fails, tears and forgets at any operation. Every file that is
//! made here is its owner's alone (mode 0600 on Unix), because states and prompts hold what was
//! said to a model.

#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod lock;
mod names;
mod private;
mod real;
mod replace;
mod writer;

use crate::file::Problem;
use crate::io::ReadAt;
use std::boxed::Box;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::vec::Vec;

pub(super) use names::{TEMP_BACK, folder_of, is_random_name, random_names, temp_front};
pub use private::Readers;
pub use real::{RealDisk, check_target};
pub use replace::{NewFile, create_beside, replace};
pub(super) use writer::FileWriter;

/// Files in folders. What was written is durable once the file was synced; what was created,
/// renamed or removed, once its folder was.
pub trait Disk: Send + Sync {
    /// Find the file that `path` leads to, links followed; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Problem::Directory`], [`Problem::NotAFile`], [`Problem::Dangling`], or what the system
    /// says.
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem>;

    /// Open a regular file, without following a link at its name. Opening it to write keeps it from
    /// all but its owner.
    ///
    /// # Errors
    /// The error of the system.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn DiskFile>>;

    /// Make a file where there is nothing, for its owner alone.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::AlreadyExists`] if there is something.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Wait until nobody else has locked `path`, and keep them out until the result is dropped.
    /// Makes an empty file there.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody had it locked for as long as `wait` says,
    /// [`io::ErrorKind::Interrupted`] if `wait` was stopped, else what the system says.
    fn lock(&self, path: &Path, wait: Wait<'_>) -> io::Result<Lock>;

    /// Make a folder, and those that it is in, for the owner alone where there is none.
    ///
    /// # Errors
    /// The error of the system.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// List the names in a folder.
    ///
    /// # Errors
    /// The error of the system.
    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Tell kind, length and time of what has this name; a link is itself.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::NotFound`] if there is nothing.
    fn facts(&self, path: &Path) -> io::Result<Facts>;

    /// Tell when the names in a folder last changed, links to it followed.
    ///
    /// # Errors
    /// The error of the system.
    fn changed(&self, folder: &Path) -> io::Result<SystemTime>;

    /// Give a file another name in the same folder, in place of whatever has it, in one step.
    ///
    /// # Errors
    /// The error of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Remove a file.
    ///
    /// # Errors
    /// The error of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Note that a file was used at `when`.
    ///
    /// # Errors
    /// The error of the system.
    fn touch(&self, path: &Path, when: SystemTime) -> io::Result<()>;

    /// Make the names in a folder durable.
    ///
    /// # Errors
    /// The error of the system.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// Purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading alone.
    Read,
    /// Reading, and writing in place.
    Write,
}

/// Kind, length and time of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// True for a regular file.
    pub is_file: bool,
    /// Bytes of the file.
    pub len: u64,
    /// Time of the last change, or the last [touch](Disk::touch).
    pub modified: SystemTime,
}

/// Limits of the waiting for a lock, and the fate of its file.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// The longest time.
    pub most: Duration,
    /// Asked while somebody else has the lock; true ends the waiting. A disk that never waits need
    /// not ask.
    pub stop: &'a dyn Fn() -> bool,
    /// True if the file goes with the lock, where the system lets names of open files be compared.
    pub goes: bool,
}

/// A lock that is held until it is dropped.
pub struct Lock {
    /// True if nobody held it before since its file was made: no process that died can have left
    /// anything.
    pub is_fresh: bool,
    /// Releases the lock when it is dropped.
    pub guard: Box<dyn Send>,
}

/// An open file. One thread at a time writes to it.
pub trait DiskFile: ReadAt + Send {
    /// Write all of `pieces`, one after the other, from `offset` on. Afterwards `pieces` show
    /// anything.
    ///
    /// # Errors
    /// The error of the system; how much was written is unknown then.
    fn write_pieces_at(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Write all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// As [`DiskFile::write_pieces_at`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_pieces_at(offset, &mut [IoSlice::new(bytes)])
    }

    /// Return under how many names the file is found.
    ///
    /// # Errors
    /// The error of the system.
    fn n_names(&self) -> io::Result<u64>;

    /// Cut or lengthen the file.
    ///
    /// # Errors
    /// The error of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Make everything written so far durable.
    ///
    /// # Errors
    /// The error of the system; what is durable is unknown then.
    fn sync(&self) -> io::Result<()>;

    /// Show others that this process writes the file, until it is closed.
    ///
    /// # Errors
    /// The error of the system.
    fn claim(&self) -> io::Result<()>;

    /// Return true if a living process has [claimed](DiskFile::claim) the file.
    ///
    /// # Errors
    /// The error of the system.
    fn is_claimed(&self) -> io::Result<bool>;
}
