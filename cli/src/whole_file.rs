//! Files that options name and that are read whole: keys, templates, questions, importance
//! matrices.

use crate::error::Error;
use crate::output::bytes;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The longest text that a person writes: keys, a template.
const MAX_WRITTEN: u64 = 1 << 20;

/// Read a text that a person wrote, of at most 1 MiB.
///
/// # Errors
/// Those of [`text`].
pub fn written(path: &Path) -> Result<String, Error> {
    text(path, MAX_WRITTEN)
}

/// Read a text of at most `limit` bytes.
///
/// # Errors
/// Those of [`content`]; [`Error::Read`] also if the file is not UTF-8.
pub fn text(path: &Path, limit: u64) -> Result<String, Error> {
    String::from_utf8(content(path, limit)?).map_err(|error| {
        let source = io::Error::new(ErrorKind::InvalidData, error);
        Error::Read { path: path.to_owned(), source }
    })
}

/// Read a file of at most `limit` bytes. It may be a device or a pipe, which have no length before
/// they are read, or no end.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read; [`Error::Refused`] if it is longer.
pub fn content(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    let file = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut read));
    file.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if read.len() as u64 > limit {
        let text = format!("{}: longer than {}; is it the file meant?", path.display(), bytes(limit));
        return Err(Error::Refused(text));
    }
    Ok(read)
}
