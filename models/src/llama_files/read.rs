//! Numbers and bytes of a file in order, each checked against what is left.

use super::{Error, Section, Wanted};
use backstitch_kv::io::{ByteReader, EndOfBytes};

/// A place in a file.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: ByteReader<'a>,
    /// First byte of the number that was read last.
    start: u64,
    /// Part of the file that is being read, for errors.
    pub section: Section,
    /// True if caches tell how their keys and values are rotated.
    pub has_rotations: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes: ByteReader::new(bytes), start: 0, section: Section::Header, has_rotations: true }
    }

    /// Return the byte that is read next.
    pub fn offset(&self) -> u64 {
        self.bytes.offset()
    }

    fn named<T>(&self, field: &'static str, read: Result<T, EndOfBytes>) -> Result<T, Error> {
        let section = self.section;
        let truncated =
            |EndOfBytes { offset, need, have }| Error::Truncated { section, field, offset, need, have };
        read.map_err(truncated)
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
        self.start = self.offset();
        let number = self.bytes.u32();
        self.named(field, number)
    }

    pub fn i32(&mut self, field: &'static str) -> Result<i32, Error> {
        self.u32(field).map(u32::cast_signed)
    }

    /// Return the error that the number that was just read is `found`.
    pub fn wrong(&self, field: &'static str, found: impl Into<i128>, wanted: Wanted) -> Error {
        Error::Field { section: self.section, field, offset: self.start, found: found.into(), wanted }
    }

    /// Read a number that can only be `wanted`.
    pub fn exactly(&mut self, field: &'static str, wanted: u32) -> Result<(), Error> {
        match self.u32(field)? {
            found if found == wanted => Ok(()),
            found => Err(self.wrong(field, found, Wanted::Exactly(wanted.into()))),
        }
    }

    /// Read the number of a version: the present one, or the one before, whose caches do not tell
    /// how keys and values are rotated.
    pub fn version(&mut self, present: u32) -> Result<(), Error> {
        let found = self.between("version", present - 1, present + 1)?;
        self.has_rotations = found == present;
        Ok(())
    }

    /// Read a number of 64 bits that can only be `wanted`.
    pub fn exactly_u64(&mut self, field: &'static str, wanted: u64) -> Result<(), Error> {
        self.start = self.offset();
        let number = self.bytes.u64();
        match self.named(field, number)? {
            found if found == wanted => Ok(()),
            found => Err(self.wrong(field, found, Wanted::Exactly(wanted))),
        }
    }

    /// Read a number of `least..end`.
    pub fn between(&mut self, field: &'static str, least: u32, end: u32) -> Result<u32, Error> {
        let found = self.i32(field)?;
        match u32::try_from(found) {
            Ok(n) if (least..end).contains(&n) => Ok(n),
            _ => Err(self.wrong(field, found, Wanted::Between(least.into(), end.into()))),
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
