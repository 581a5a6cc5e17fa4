//! Temporary files: new files that get their final name once they are complete.
//!
//! They are made in the folder of the final name, so that renaming is atomic, and removed when they
//! are dropped or a signal ends the program.

use backstitch_kv::storage::disk::{Disk, RealDisk};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Paths of all temporary files, so that [`remove_all`] can remove them.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A new file beside the one that it will replace. Dropping it removes the file.
pub struct Temporary {
    path: PathBuf,
}

/// The users that may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The owner only, for files that hold a person's text.
    Owner,
    /// The users that the system's default allows.
    Usual,
}

impl Temporary {
    /// Make an empty file in the folder of `path`, under a random name that nobody can foresee.
    ///
    /// # Errors
    /// The error of the operating system, or `InvalidInput` if `path` has no file name.
    #[cfg_attr(not(unix), expect(unused_variables, reason = "rights are those of the folder there"))]
    pub fn beside(path: &Path, readers: Readers) -> io::Result<(Self, File)> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{:016x}.tmp", RandomState::new().hash_one(0)));
        let temporary = Self { path: path.with_file_name(name) };
        live().push(temporary.path.clone());
        let mut options = OpenOptions::new();
        // Rights are set as the file is made, so that nobody else can open it before. Elsewhere
        // they are those of its folder.
        #[cfg(unix)]
        if readers == Readers::Owner {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let file = options.write(true).create_new(true).open(&temporary.path)?;
        Ok((temporary, file))
    }

    /// Give the file its final name, in place of a file that has it, and make the name survive a
    /// loss of power, where folders can be synced.
    ///
    /// # Errors
    /// The error of the operating system; the temporary file is removed then. If only the last step
    /// failed, the making durable, it has its final name.
    pub fn rename(self, path: &Path) -> io::Result<()> {
        self.rename_and(path, |folder| RealDisk.sync_folder(folder))
    }

    /// As [`Temporary::rename`], with the syncing of a folder, which tests replace.
    fn rename_and(self, path: &Path, sync: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        sync(&path.with_file_name("."))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is no file to remove, and after a failure that error says more.
        let _ = fs::remove_file(&self.path);
        live().retain(|path| *path != self.path);
    }
}

/// Remove all temporary files, for a program that ends at once.
pub fn remove_all() {
    for path in live().drain(..) {
        let _ = fs::remove_file(path);
    }
}

/// Lock the list of temporary files. A panic elsewhere does not make it unusable.
fn live() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_its_name_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let n_files = || fs::read_dir(folder.path()).unwrap().count();
        drop(Temporary::beside(&path, Readers::Usual).unwrap());
        assert_eq!(n_files(), 0);
        let (temporary, _) = Temporary::beside(&path, Readers::Owner).unwrap();
        temporary.rename(&path).unwrap();
        assert!(path.exists() && n_files() == 1);
    }

    #[test]
    fn the_folder_is_synced_after_the_renaming() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let (temporary, _) = Temporary::beside(&path, Readers::Owner).unwrap();
        let renamed = temporary.rename_and(&path, |synced| {
            assert!(path.exists() && fs::canonicalize(synced)? == fs::canonicalize(folder.path())?);
            Err(io::ErrorKind::Other.into())
        });
        assert!(renamed.is_err() && path.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_private_file_is_readable_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (_temporary, file) = Temporary::beside(&folder.path().join("a"), Readers::Owner).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
