//! Numbers of a section, one after the other.

use crate::io::{ByteReader, EndOfBytes};
use crate::storage::error::Error;
use crate::storage::header::Tag;

/// Reads little-endian numbers from the content of a section, and says in its errors which section
/// that was.
///
/// Offsets in errors are those within the section.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    section: Tag,
    bytes: ByteReader<'a>,
}

impl<'a> Fields<'a> {
    /// Read `bytes`, the content of `section`.
    pub fn new(section: Tag, bytes: &'a [u8]) -> Self {
        Fields { section, bytes: ByteReader::new(bytes) }
    }

    /// Read what `read` takes, such as [`ByteReader::u32`] or [`ByteReader::array`].
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer bytes are left.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&mut ByteReader<'a>) -> Result<T, EndOfBytes>,
    ) -> Result<T, Error> {
        let section = self.section;
        let cut = |EndOfBytes { offset, need, have }| Error::Truncated { section, offset, need, have };
        read(&mut self.bytes).map_err(cut)
    }

    /// Read a count of things that take at least `least` bytes each, so that a list of them is no
    /// longer than the section.
    ///
    /// # Errors
    /// [`Error::Truncated`] if it is not there; [`Error::TooLarge`] if there cannot be so many
    /// things.
    pub fn count(&mut self, least: usize) -> Result<usize, Error> {
        let value = self.read(ByteReader::u32)?;
        let limit = self.bytes.left() / least.max(1) as u64;
        if u64::from(value) > limit {
            return Err(Error::TooLarge { what: "things of a list", value: value.into(), limit });
        }
        Ok(value as usize)
    }

    /// Return the error for a value at the end of what was read.
    pub fn malformed(&self, what: &'static str, found: u64, wanted: u64) -> Error {
        Error::Malformed { section: self.section, offset: self.bytes.offset(), what, found, wanted }
    }

    /// Check that nothing is left.
    ///
    /// # Errors
    /// [`Error::Malformed`] if there are bytes after the last field.
    pub fn end(self) -> Result<(), Error> {
        match self.bytes.left() {
            0 => Ok(()),
            left => Err(self.malformed("bytes after the end", left, 0)),
        }
    }
}
