//! Temporary files: new files that get their final name once they are complete.
//!
//! They are made in the folder of the final name, so that renaming is atomic, and removed when they
//! are dropped, when a signal ends the program, or by the next that writes there.

pub use backstitch_kv::storage::disk::Readers;
use backstitch_kv::storage::disk::{Disk, RealDisk, create_beside};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Paths of all temporary files, so that [`remove_all`] can remove them.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A new file beside the one that it will replace. Dropping it removes the file.
pub struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Make an empty file in the folder of `path`, under a random name that nobody can foresee.
    ///
    /// # Errors
    /// The error of the operating system, or `InvalidInput` if `path` has no file name.
    pub fn beside(path: &Path, readers: Readers) -> io::Result<(Self, File)> {
        let (file, path) = create_beside(path, readers)?;
        live().push(path.clone());
        Ok((Self { path }, file))
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
    fn a_state_saved_to_the_same_path_leaves_the_file_alone() {
        use backstitch_kv::storage::{Fingerprint, Header, Scope, Sync, save};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bst");
        let (temporary, file) = Temporary::beside(&path, Readers::Owner).unwrap();
        let header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };
        save(&RealDisk, &path, header, Sync::No, &mut |_| Ok(())).unwrap();
        drop(file);
        temporary.rename(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
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
