//! Replacing files: each holds the old bytes or the new ones, whatever happens.

use super::names::{TEMP_BACK, folder_of, is_random_name, random_names};
use super::private::{Readers, create};
use super::{Disk, DiskFile, RealDisk};
use crate::file::{expect_size, open_plain};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file that [`replace`] makes.
///
/// A write beyond the size that this process may give a file is an error, where the system answers
/// with a signal that ends the process.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    len: u64,
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        expect_size(self.len.saturating_add(bytes.len() as u64))?;
        let n = self.file.write(bytes)?;
        self.len += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Write a new file, for these readers, in place of what is at `path`: it holds the old bytes or
/// the new ones, whatever happens. `write` gets an empty file beside it, which is synced and takes
/// the name over, be it that of a link or a device; [`Disk::find`] follows links and refuses the
/// rest. On an error nothing is left beside it, and what was there is as it was, or the new file if
/// only the last step failed, which makes the name durable. What a killed process left is removed
/// by the next that writes at `path`.
///
/// # Errors
/// That of `write`, or what the system says.
///
/// # Example
/// ```
/// use backstitch_kv::storage::disk::{Readers, replace};
/// use std::io::{Error, Write};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("a.txt");
/// std::fs::write(&path, b"old")?;
/// replace(&path, Readers::Owner, |file| file.write_all(b"new"))?;
/// replace(&path, Readers::Owner, |_| Err(Error::other("nothing to say"))).unwrap_err();
/// assert_eq!(std::fs::read(&path)?, b"new");
/// # Ok::<(), Error>(())
/// ```
pub fn replace<E: From<io::Error>>(
    path: impl AsRef<Path>,
    readers: Readers,
    write: impl FnOnce(&mut NewFile) -> Result<(), E>,
) -> Result<(), E> {
    let path = path.as_ref();
    let (file, temp) = create_beside(path, readers)?;
    let mut new = NewFile { file, len: 0 };
    let written = write(&mut new).and_then(|()| {
        new.file.sync_all()?;
        Ok(fs::rename(&temp, path)?)
    });
    if written.is_err() {
        // Whatever is left is of no use; the error to report is the first one.
        let _ = fs::remove_file(&temp);
        return written;
    }
    Ok(RealDisk.sync_folder(folder_of(path))?)
}

/// Make an empty file beside `path`, for whoever renames it there once it is whole, and return it
/// with its path. As long as it is open, it is no leftover; those of killed processes that wrote at
/// `path` are removed.
///
/// # Errors
/// The error of the system, or [`ErrorKind::InvalidInput`] if `path` has no file name.
pub fn create_beside(path: &Path, readers: Readers) -> io::Result<(File, PathBuf)> {
    let folder = folder_of(path);
    // Without a dot in front: whoever saves a state at `path` removes temporary files with one.
    let mut front = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    front.push(".");
    let names = RealDisk.names_in(folder).unwrap_or_default();
    for name in names.iter().filter(|name| is_random_name(name, &front, TEMP_BACK)) {
        remove_leftover(&folder.join(name));
    }
    random_names(folder, &front, TEMP_BACK, |path| create_claimed(path, readers))
}

/// Remove a file whose writer is gone.
fn remove_leftover(path: &Path) {
    let Ok(file) = open_plain(path, OpenOptions::new().read(true).write(true)) else { return };
    // Locked while its name goes, so that nobody claims it meanwhile.
    if file.try_lock().is_ok() {
        let _ = fs::remove_file(path);
    }
}

/// Make a file and claim it, where the file system knows locks; where it does not, nobody takes it
/// for a leftover either.
fn create_claimed(path: &Path, readers: Readers) -> io::Result<File> {
    let file = create(path, readers)?;
    // Before it was claimed, somebody may have taken it for one; then another name does.
    let is_taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || file.n_names()? == 0;
    if is_taken { Err(ErrorKind::AlreadyExists.into()) } else { Ok(file) }
}
