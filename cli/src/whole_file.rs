//! Small text files that an option names: keys, templates.

use crate::error::Error;
use crate::output::bytes;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Read a text of at most [`MAX_BYTES`]. The file may be a device or a pipe, which have no length
/// before they are read, or no end.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read or is not UTF-8; [`Error::Refused`] if it is longer.
pub fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut read = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut read).map_err(failed)?;
    if read.len() as u64 > MAX_BYTES {
        return Err(Error::Refused(format!("{}: longer than {}", path.display(), bytes(MAX_BYTES))));
    }
    let not_text = |error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error));
    String::from_utf8(read).map_err(not_text)
}
