//! Numbers and bytes of a file in order, each checked against what is left.

use super::{Error, Section, Wanted};
use crate::io::{ByteReader, EndOfBytes};

/// A place in a file.
pub(super) struct Reader<'a> {
    bytes: ByteReader<'a>,
    /// What is being read, for errors.
    pub section: Section,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes: ByteReader::new(bytes), section: Section::Header }
    }

    /// Return the byte that is read next.
    pub fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    fn named<T>(&self, field: &'static str, read: Result<T, EndOfBytes>) -> Result<T, Error> {
        let section = self.section;
        read.map_err(|EndOfBytes { offset, need, have }| Error::Truncated {
            section,
            field,
            offset,
            need,
            have,
        })
    }

    /// Check that `n` things of at least `least` bytes each can follow.
    pub fn ensure(&self, n: u64, least: u64, field: &'static str) -> Result<(), Error> {
        self.named(field, self.bytes.ensure(n, least))
    }

    pub fn bytes(&mut self, n: u64, field: &'static str) -> Result<&'a [u8], Error> {
        let bytes = self.bytes.take(n);
        self.named(field, bytes)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        let number = self.bytes.u32();
        self.named(field, number)
    }

    pub fn i32(&mut self, field: &'static str) -> Result<i32, Error> {
        let number = self.bytes.i32();
        self.named(field, number)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        let number = self.bytes.u64();
        self.named(field, number)
    }

    /// Return the error that the number of `size` bytes that was just read is `found`.
    pub fn wrong(&self, field: &'static str, size: u64, found: impl Into<i128>, wanted: Wanted) -> Error {
        let offset = self.offset().saturating_sub(size);
        Error::Field { section: self.section, field, offset, found: found.into(), wanted }
    }

    /// Return a number that can only be `wanted`.
    pub fn exactly(&mut self, field: &'static str, wanted: u32) -> Result<(), Error> {
        let found = self.u32(field)?;
        if found == wanted {
            Ok(())
        } else {
            Err(self.wrong(field, 4, found, Wanted::Exactly(wanted.into())))
        }
    }

    /// Return a number of 64 bits that can only be `wanted`.
    pub fn exactly_u64(&mut self, field: &'static str, wanted: u64) -> Result<(), Error> {
        let found = self.u64(field)?;
        if found == wanted { Ok(()) } else { Err(self.wrong(field, 8, found, Wanted::Exactly(wanted))) }
    }

    /// Return a number of `least..end`.
    pub fn between(&mut self, field: &'static str, least: u32, end: u32) -> Result<u32, Error> {
        let found = self.i32(field)?;
        match u32::try_from(found) {
            Ok(n) if (least..end).contains(&n) => Ok(n),
            _ => Err(self.wrong(field, 4, found, Wanted::Between(least.into(), end.into()))),
        }
    }

    /// Check that nothing follows.
    pub fn finish(&self) -> Result<(), Error> {
        match self.bytes.left() {
            0 => Ok(()),
            n_bytes => Err(Error::Trailing { offset: self.offset(), n_bytes }),
        }
    }
}
