//! Numbers of a section, one after the other.

use super::{Error, Tag};
use alloc::vec::Vec;

/// Reads little-endian numbers from the content of a section; every length is compared with what is there.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    section: Tag,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Reads `bytes`, the content of `section`.
    pub fn new(section: Tag, bytes: &'a [u8]) -> Self {
        Fields { section, bytes, at: 0 }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`]; offsets are those within the section.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (section, offset) = (self.section, self.at as u64);
        let (need, have) = (n as u64, rest.len() as u64);
        let taken = rest.get(..n).ok_or(Error::Truncated { section, offset, need, have })?;
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 32 bits, without sign.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 32 bits, with sign.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn i32(&mut self) -> Result<i32, Error> {
        self.array().map(i32::from_le_bytes)
    }

    /// The next 64 bits, without sign.
    ///
    /// # Errors
    /// As [`Fields::take`].
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of things that take at least `least` bytes each, so that a list of them is no longer than the section.
    ///
    /// # Errors
    /// As [`Fields::take`], and [`Error::TooLarge`] if there cannot be so many.
    pub fn count(&mut self, least: usize) -> Result<usize, Error> {
        let value = self.u32()?;
        let left = (self.bytes.len() - self.at) as u64;
        let limit = left / least.max(1) as u64;
        if u64::from(value) > limit {
            return Err(Error::TooLarge { what: "things of a list", value: value.into(), limit });
        }
        Ok(value as usize)
    }

    /// The error for a value at the end of what was read.
    pub fn malformed(&self, what: &'static str, found: u64, wanted: u64) -> Error {
        Error::Malformed { section: self.section, offset: self.at as u64, what, found, wanted }
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn end(self) -> Result<(), Error> {
        let left = (self.bytes.len() - self.at) as u64;
        if left == 0 { Ok(()) } else { Err(self.malformed("bytes after the end", left, 0)) }
    }
}

/// Appends little-endian numbers.
pub(super) trait Put {
    fn put_u8(&mut self, x: u8);
    fn put_u32(&mut self, x: u32);
    fn put_i32(&mut self, x: i32);
    /// A count; lists are far shorter than 2^32.
    fn put_len(&mut self, len: usize);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, x: u8) {
        self.push(x);
    }

    fn put_u32(&mut self, x: u32) {
        self.extend_from_slice(&x.to_le_bytes());
    }

    fn put_i32(&mut self, x: i32) {
        self.extend_from_slice(&x.to_le_bytes());
    }

    fn put_len(&mut self, len: usize) {
        self.put_u32(len as u32);
    }
}
