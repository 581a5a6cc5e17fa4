//! Replacing files: each holds the old bytes or the new ones, whatever happens.

use crate::error::Error;
use backstitch_kv::file::FileError;
use backstitch_kv::storage::disk::{Disk, RealDisk};
use backstitch_quantize::Error as QuantizeError;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// Write a file beside the one that `path` leads to, links followed, by `write`, sync it, and give
/// it the name of that one. On an error nothing is left beside it, and the file is as it was, or
/// the new one if only the last step failed, which makes the new name durable.
///
/// # Errors
/// Those of `write`, and [`Error::File`]: a directory, a pipe or device, a link to nothing, or what
/// the system says.
pub fn replace(path: &Path, write: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |problem| Error::File(FileError::new(path, problem));
    let found = RealDisk.find(path).map_err(failed)?;
    put(found.as_deref().unwrap_or(path), write).map_err(|error| match error {
        Error::Io(error) | Error::Quantize(QuantizeError::Io(error)) => failed(error.into()),
        error => error,
    })
}

/// Replace what is at `path`, whatever it is.
fn put(path: &Path, write: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
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
    Ok(RealDisk.sync_folder(&path.with_file_name("."))?)
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
