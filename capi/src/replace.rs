//! Replacing files: each holds the old bytes or the new ones, whatever happens.

use crate::error::Error;
use backstitch_kv::file::FileError;
use backstitch_kv::storage::disk::{self, Disk, NewFile, Readers, RealDisk};
use backstitch_quantize::Error as QuantizeError;
use std::path::Path;

/// Replace the file that `path` leads to, links followed, by what `write` writes for `readers`; see
/// [`disk::replace`].
///
/// # Errors
/// Those of `write`, and [`Error::File`]: a directory, a pipe or device, a link to nothing, or what
/// the system says.
pub fn replace(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut NewFile) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |problem| Error::File(FileError::new(path, problem));
    let found = RealDisk.find(path).map_err(failed)?;
    disk::replace(found.as_deref().unwrap_or(path), readers, write).map_err(|error| match error {
        Error::Io(error) | Error::Quantize(QuantizeError::Io(error)) => failed(error.into()),
        error => error,
    })
}
