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

    fn named<T>(&self, read: Result<T, EndOfBytes>) -> Result<T, Error> {
        let section = self.section;
        read.map_err(|EndOfBytes { offset, need, have }| Error::Truncated { section, offset, need, have })
    }

    /// Take the next `n` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let taken = self.bytes.take(n as u64);
        self.named(taken)
    }

    /// Take the next `N` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let array = self.bytes.array();
        self.named(array)
    }

    /// Read the next byte.
    ///
    /// # Errors
    /// [`Error::Truncated`] if none is left.
    pub fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    /// Read the next 32 bits, without sign.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    /// Read the next 32 bits, with sign.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn i32(&mut self) -> Result<i32, Error> {
        self.array().map(i32::from_le_bytes)
    }

    /// Read the next 64 bits, without sign.
    ///
    /// # Errors
    /// [`Error::Truncated`] if fewer are left.
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Read a count of things that take at least `least` bytes each, so that a list of them is no
    /// longer than the section.
    ///
    /// # Errors
    /// [`Error::Truncated`] if it is not there; [`Error::TooLarge`] if there cannot be so many
    /// things.
    pub fn count(&mut self, least: usize) -> Result<usize, Error> {
        let value = self.u32()?;
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
