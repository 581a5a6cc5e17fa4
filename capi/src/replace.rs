//! Replacing files: each holds the old bytes or the new ones, whatever happens.

use crate::error::Error;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// Write a file beside `path` by `write`, sync it, and give it the name `path`. On an error the
/// file at `path` is as it was, and nothing is left beside it.
///
/// # Errors
/// Those of `write`, and [`Error::Io`].
pub fn replace(path: &Path, write: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
    let (temporary, file) = create_beside(path)?;
    let result = write(&file).and_then(|()| {
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        Ok(())
    });
    if result.is_err() {
        // Whatever is left is of no use; the error to report is the first one.
        let _ = std::fs::remove_file(&temporary);
        return result;
    }
    Ok(sync_folder(path)?)
}

/// Create a file with a random name beside another.
fn create_beside(path: &Path) -> Result<(PathBuf, File), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.tmp", RandomState::new().hash_one(path)));
    let temporary = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&temporary)?;
    Ok((temporary, file))
}

/// Make the new name survive a loss of power, where folders can be synced.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
